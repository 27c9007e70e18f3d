"""Who signed an attestation, as the certificate says that the authority found out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

# The extensions of Fulcio's certificates, by the last number: https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md
_FULCIO = "1.3.6.1.4.1.57264.1."
_CLAIMS = {
    "issuer": 8,
    "build_signer": 9,
    "source_repository": 12,
    "source_repository_digest": 13,
    "source_repository_ref": 14,
    "build_config": 18,
    "run_invocation": 21,
}
_GITHUB, _GITLAB = "https://token.actions.githubusercontent.com", "https://gitlab.com"
_GOOGLE = "https://accounts.google.com"
_GITHUB_WORKFLOW = re.compile(r"https://github\.com/([^/]+/[^/]+)/\.github/workflows/([^/@]+)@.+")
_GITLAB_PIPELINE = re.compile(r"https://gitlab\.com/(.+?)//([^@]+)@.+")


def publisher_of(certificate: Certificate, extensions: dict[str, str]) -> dict[str, Any]:
    """Return the publisher object of PEP 740 for a certificate that was verified, with its claims.

    `extensions` are those of Fulcio, by their dotted number. Kinds that PyPI knows are named as PyPI names them, so
    that its tools can read them; everybody else is of the kind `Sigstore`, with issuer and identity.

    Raises:
        ValueError: the certificate does not say who it is for.
    """
    named = {name: extensions.get(f"{_FULCIO}{number}") for name, number in _CLAIMS.items()}
    claims = {"identity": _identity(certificate), **{name: value for name, value in named.items() if value}}
    if "issuer" not in claims:
        raise ValueError("its certificate does not say who identified the signer")
    return {**_kind_of(claims), "claims": claims}


def describe(publisher: dict[str, Any]) -> str:
    """Return a publisher in a few words for people."""
    if publisher["kind"] == "GitHub":
        return f"GitHub {publisher['repository']}, workflow {publisher['workflow']}"
    if publisher["kind"] == "GitLab":
        return f"GitLab {publisher['repository']}, pipeline {publisher['workflow_filepath']}"
    claims = publisher["claims"]
    return f"{claims['identity']}, identified by {claims['issuer']}"


def who(publisher: dict[str, Any]) -> dict[str, Any]:
    """Return what stays the same from one run of a publisher to the next."""
    return {name: value for name, value in publisher.items() if name != "claims"}


def _kind_of(claims: dict[str, str]) -> dict[str, str]:
    issuer, repository, build = claims["issuer"], claims.get("source_repository"), claims.get("build_config", "")
    workflow = _GITHUB_WORKFLOW.fullmatch(build)
    if issuer == _GITHUB and workflow and repository == f"https://github.com/{workflow[1]}":
        return {"kind": "GitHub", "repository": workflow[1], "workflow": workflow[2]}
    pipeline = _GITLAB_PIPELINE.fullmatch(build)
    if issuer == _GITLAB and pipeline and repository == f"{_GITLAB}/{pipeline[1]}":
        return {"kind": "GitLab", "repository": pipeline[1], "workflow_filepath": pipeline[2]}
    if issuer == _GOOGLE and "@" in claims["identity"]:
        return {"kind": "Google", "email": claims["identity"]}
    return {"kind": "Sigstore", "issuer": issuer, "identity": claims["identity"]}


def _identity(certificate: Certificate) -> str:
    """Return the one name that a certificate is for: an e-mail address, a URI, or Fulcio's own kind of user name."""
    from cryptography import x509
    from pyasn1.codec.der.decoder import decode
    from pyasn1.type.char import UTF8String

    names = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    if len(names) == 1 and isinstance(names[0], x509.RFC822Name | x509.UniformResourceIdentifier):
        return names[0].value
    if len(names) == 1 and isinstance(names[0], x509.OtherName) and names[0].type_id.dotted_string == f"{_FULCIO}7":
        return str(decode(names[0].value, asn1Spec=UTF8String())[0])
    raise ValueError("its certificate is not for one identity")
