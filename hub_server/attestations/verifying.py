"""Verifying attestations: that they are about a file, signed by whom, and seen by the transparency log in time.

What is kept of an attestation is written anew from what was read of it, so that unknown members do not ride along.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, Field, ValidationError

from hub_server.attestations.publishers import publisher_of
from hub_server.errors import Malformed, NotServing, TooLarge

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from sigstore.verify import Verifier

# PyPI's types: an attestation of another type says something that nobody reads.
_PREDICATE_TYPES = ("https://docs.pypi.org/attestations/publish/v1", "https://slsa.dev/provenance/v1")
_MAX_BYTES = 512 * 1024
_MAX_REASON = 300
_ENVELOPE_TYPE = "application/vnd.in-toto+json"
_NOTE_SIGNATURES = re.compile(r"(\u2014 [!-~]+ [A-Za-z0-9+/=]+\n)+")
# Sigstore's own, as its package brings it. Its client keeps a copy in the user's folder and reads that one for good:
# a hub would need a home to write to, and would not see the keys of a newer package.
_PUBLIC_ROOT = ("_store", quote("https://tuf-repo-cdn.sigstore.dev", safe=""), "trusted_root.json")


@dataclass(frozen=True)
class Verified:
    """An attestation that holds for its file."""

    predicate_type: str
    body: dict[str, Any]
    publisher: dict[str, Any]


class _Subject(BaseModel):
    name: str
    digest: dict[str, str]


class _Statement(BaseModel):
    """An in-toto statement about one file."""

    kind: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")]
    subject: Annotated[list[_Subject], Field(min_length=1, max_length=1)]
    predicate_type: Annotated[str, Field(alias="predicateType")]


class _AnybodyIdentified:
    """Takes every signer: who it was is kept with the attestation, for those who read it to judge."""

    def verify(self, cert: Certificate) -> None:
        """Refuse nobody."""


class AttestationVerifier:
    """Verifies attestations by a trust root: Sigstore's public one, or the file of an operator's own."""

    def __init__(self, trust_root: Path | None = None) -> None:
        self._trust_root = trust_root

    def verify(self, text: str, filename: str, sha256: str) -> Sequence[Verified]:
        """Return the attestations in `text`, the JSON list of an upload, which all hold for this file.

        Raises:
            Malformed: it is no such list, or one of them does not hold.
            TooLarge: it is over the limit.
        """
        verified = [
            self._verify(item, filename, sha256, f"attestation {number} of {filename}")
            for number, item in enumerate(_read_list(text), start=1)
        ]
        if len({one.predicate_type for one in verified}) < len(verified):
            raise Malformed(f"{filename} has two attestations with the same type of predicate; send one of each")
        return verified

    @cached_property
    def _verifier(self) -> Verifier:
        return _open_verifier(self._trust_root or files("sigstore").joinpath(*_PUBLIC_ROOT))

    def _verify(self, item: Any, filename: str, sha256: str, shown: str) -> Verified:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.x509 import ExtensionNotFound
        from pypi_attestations import Attestation
        from sigstore.errors import Error

        try:
            sent = Attestation.model_validate(item)
            if len(sent.verification_material.transparency_entries) != 1:
                raise ValueError("it has more than one entry of a transparency log")
            bundle = sent.to_bundle()
            _check_nothing_rides_along(sent.verification_material.transparency_entries[0])
            payload_type, payload = self._verifier.verify_dsse(bundle, _AnybodyIdentified())
            if payload_type != _ENVELOPE_TYPE:
                raise ValueError(f"what is signed is {payload_type}, and no statement")
            statement = _Statement.model_validate_json(payload)
            publisher = publisher_of(bundle.signing_certificate, sent.certificate_claims)
            body = Attestation.from_bundle(bundle).model_dump(mode="json")
        # What comes in is anybody's bytes, and the libraries below raise whatever such bytes run into.
        except (
            Error, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, UnsupportedAlgorithm,
            ExtensionNotFound,
        ) as error:  # fmt: skip
            raise Malformed(f"{shown} does not verify: {_reason(error)}") from None
        _check_is_about(statement, filename, sha256, shown)
        return Verified(statement.predicate_type, body, publisher)


def check_trust_root(path: Path | None) -> None:
    """Read an operator's trust root, so that a hub does not start with one that cannot be used.

    Raises:
        NotServing: it cannot be read, or is not one.
    """
    if path is None:
        return
    from sigstore.errors import Error

    try:
        _open_verifier(path)
    except OSError as error:
        raise NotServing(f"cannot read the trust root {path}: {error.strerror}") from None
    except (Error, ValueError) as error:
        raise NotServing(
            f"{path} is not a trust root of Sigstore: {_reason(error)}",
            hint="give the file trusted_root.json of a Sigstore deployment",
        ) from None


def _open_verifier(trust_root: Path | Traversable) -> Verifier:
    from sigstore._internal.trust import KeyringPurpose
    from sigstore.models import TrustedRoot
    from sigstore.verify import Verifier

    root = TrustedRoot.from_file(str(trust_root))
    root.rekor_keyring(KeyringPurpose.VERIFY)
    root.ct_keyring(KeyringPurpose.VERIFY)
    return Verifier(trusted_root=root)


def _read_list(text: str) -> list[Any]:
    if len(text) > _MAX_BYTES:
        raise TooLarge(f"the attestations of a file may have {_MAX_BYTES} bytes together")
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list) or not items:
        raise Malformed("the field 'attestations' is not a JSON list of attestations (PEP 740)")
    if len(items) > len(_PREDICATE_TYPES):
        raise Malformed(f"{len(items)} attestations for one file; there are {len(_PREDICATE_TYPES)} types, one of each")
    return items


def _check_is_about(statement: _Statement, filename: str, sha256: str, shown: str) -> None:
    """Raise Malformed unless a statement is one that hubs keep, about these very bytes under this very name."""
    (subject,) = statement.subject
    if subject.name != filename:
        raise Malformed(f"{shown} is about another file, {subject.name!r}")
    if subject.digest.get("sha256") != sha256:
        raise Malformed(f"{shown} is about other bytes: it names the sha256 {subject.digest.get('sha256')}")
    if statement.predicate_type not in _PREDICATE_TYPES:
        raise Malformed(f"{shown} has the unknown predicate type {statement.predicate_type!r}")


def _check_nothing_rides_along(entry: dict[str, Any]) -> None:
    """Raise ValueError when a log's checkpoint has lines that nobody signed; readers of such notes pass over them."""
    _, _, signatures = entry["inclusionProof"]["checkpoint"]["envelope"].partition("\n\n")
    if not _NOTE_SIGNATURES.fullmatch(signatures):
        raise ValueError("the checkpoint of its log holds something else than signatures")


def _reason(error: Exception) -> str:
    """Return why something does not hold in one line, without the values that came with it."""
    if isinstance(error, ValidationError):
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        return f"{place}: {problem['msg']}" if place else problem["msg"]
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= _MAX_REASON else words[:_MAX_REASON] + "…"
