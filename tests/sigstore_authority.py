"""A Sigstore of our own: a certificate authority, a certificate log and a transparency log, with keys made in memory.

It signs as a publisher's machine would after asking Fulcio and Rekor, and writes the trust root that a hub is given.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

PUBLISH = "https://docs.pypi.org/attestations/publish/v1"
SLSA = "https://slsa.dev/provenance/v1"
GITHUB = "https://token.actions.githubusercontent.com"
REPOSITORY = "https://github.com/our-lab/environments"
_FULCIO = "1.3.6.1.4.1.57264.1."
_SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_LOG_NAME = "log.example"
# What Fulcio writes into a certificate for a GitHub workflow, by the last number of each extension.
WORKFLOW = {
    8: GITHUB,
    12: REPOSITORY,
    13: "4f2c9d0b6a1e8f7c3d5b9a2e1f4c6d8b7a3e5f90",
    14: "refs/tags/v1",
    18: f"{REPOSITORY}/.github/workflows/publish.yml@refs/tags/v1",
    21: f"{REPOSITORY}/actions/runs/42/attempts/1",
}


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_public(key)).digest()


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _compact(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


@dataclass
class Authority:
    """All three services in one; `now` is the time at which they sign."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))
    _ca_key: ec.EllipticCurvePrivateKey = field(default_factory=_key)
    _ct_key: ec.EllipticCurvePrivateKey = field(default_factory=_key)
    _log_key: ec.EllipticCurvePrivateKey = field(default_factory=_key)

    def __post_init__(self) -> None:
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "our-sigstore")])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        public = self._ca_key.public_key()
        self._root = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now - timedelta(days=1000))
            .not_valid_after(self.now + timedelta(days=1000))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._ca_key, SHA256())
        )

    def write_trust_root(self, path: Path) -> Path:
        """Write what a verifier has to trust, in Sigstore's own form."""
        always = {"start": (self.now - timedelta(days=1000)).isoformat().replace("+00:00", "Z")}

        def log(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            return {
                "baseUrl": f"https://{_LOG_NAME}",
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": _b64(_public(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": always
                },
                "logId": {"keyId": _b64(_id(key))},
            }  # fmt: skip

        authority = {
            "subject": {"organization": "our-lab", "commonName": "our-sigstore"},
            "uri": "https://fulcio.example",
            "certChain": {"certificates": [{"rawBytes": _b64(self._root.public_bytes(Encoding.DER))}]},
            "validFor": always,
        }
        root = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self._log_key)],
            "certificateAuthorities": [authority],
            "ctlogs": [log(self._ct_key)],
            "timestampAuthorities": [],
        }
        path.write_text(json.dumps(root))
        return path

    def attest(
        self,
        filename: str,
        sha256: str,
        *,
        predicate_type: str = PUBLISH,
        predicate: dict[str, Any] | None = None,
        claims: dict[int, str] | None = None,
        identity: x509.GeneralName | None = None,
        statement: bytes | None = None,
        signed_after: timedelta = timedelta(minutes=1),
    ) -> dict[str, Any]:
        """Return an attestation of a file as PEP 740 has it, by the workflow of our repository unless said otherwise.

        `signed_after` is when the transparency log saw it, from the beginning of the certificate's ten minutes.
        """
        statement = statement or _compact(
            {
                "_type": "https://in-toto.io/Statement/v1",
                "subject": [{"name": filename, "digest": {"sha256": sha256}}],
                "predicateType": predicate_type,
                "predicate": predicate,
            }
        )
        signer = _key()
        certificate = self._certify(signer, claims or WORKFLOW, identity)
        envelope_type = "application/vnd.in-toto+json"
        signed = b"DSSEv1 %d %s %d %s" % (len(envelope_type), envelope_type.encode(), len(statement), statement)
        signature = signer.sign(signed, ec.ECDSA(SHA256()))
        return {
            "version": 1,
            "verification_material": {
                "certificate": _b64(certificate.public_bytes(Encoding.DER)),
                "transparency_entries": [self._log(statement, signature, certificate, self.now + signed_after)],
            },
            "envelope": {"statement": _b64(statement), "signature": _b64(signature)},
        }

    def _certify(
        self, signer: ec.EllipticCurvePrivateKey, claims: dict[int, str], identity: x509.GeneralName | None
    ) -> x509.Certificate:
        """Return a certificate of ten minutes, with the certificate log's timestamp inside."""
        named = identity or x509.UniformResourceIdentifier(claims.get(18, "https://ci.example/publish"))
        usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self._root.subject)
            .public_key(signer.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now)
            .not_valid_after(self.now + timedelta(minutes=10))
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._ca_key.public_key()), critical=False
            )
            .add_extension(x509.SubjectAlternativeName([named]), critical=True)
        )
        for number, value in claims.items():
            text = value.encode()
            length = bytes([len(text)]) if len(text) < 128 else bytes([0x81, len(text)])
            extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(f"{_FULCIO}{number}"), b"\x0c" + length + text)
            builder = builder.add_extension(extension, critical=False)
        # What the log signs is the certificate without its own signature (RFC 6962, 3.2).
        precertificate = builder.sign(self._ca_key, SHA256()).tbs_certificate_bytes
        timestamp = struct.pack("!Q", int(self.now.timestamp() * 1000))
        entry = b"\x00\x01" + _id(self._ca_key) + len(precertificate).to_bytes(3, "big") + precertificate + b"\x00\x00"
        signature = self._ct_key.sign(b"\x00\x00" + timestamp + entry, ec.ECDSA(SHA256()))
        sct = b"\x00" + _id(self._ct_key) + timestamp + b"\x00\x00" + b"\x04\x03" + struct.pack("!H", len(signature))
        sct += signature
        listed = struct.pack("!HH", len(sct) + 2, len(sct)) + sct
        octets = b"\x04" + (bytes([len(listed)]) if len(listed) < 128 else bytes([0x81, len(listed)])) + listed
        return builder.add_extension(x509.UnrecognizedExtension(_SCT_LIST, octets), critical=False).sign(
            self._ca_key, SHA256()
        )

    def _log(
        self, statement: bytes, signature: bytes, certificate: x509.Certificate, seen_at: datetime
    ) -> dict[str, Any]:
        """Return the entry of a log with two leaves, of which this is the second."""
        digest = {"algorithm": "sha256", "value": hashlib.sha256(statement).hexdigest()}
        verifier = _b64(certificate.public_bytes(Encoding.PEM))
        body = _compact(
            {
                "apiVersion": "0.0.1",
                "kind": "dsse",
                "spec": {
                    "envelopeHash": digest,
                    "payloadHash": digest,
                    "signatures": [{"signature": _b64(signature), "verifier": verifier}],
                },
            }
        )
        sibling = hashlib.sha256(b"\x00the first entry of the log").digest()
        root = hashlib.sha256(b"\x01" + sibling + hashlib.sha256(b"\x00" + body).digest()).digest()
        note = f"{_LOG_NAME}\n2\n{_b64(root)}\n"
        note_signature = _id(self._log_key)[:4] + self._log_key.sign(note.encode(), ec.ECDSA(SHA256()))
        promised = {
            "body": _b64(body),
            "integratedTime": int(seen_at.timestamp()),
            "logID": _id(self._log_key).hex(),
            "logIndex": 1,
        }
        promise = self._log_key.sign(_compact(promised), ec.ECDSA(SHA256()))
        return {
            "logIndex": "1",
            "logId": {"keyId": _b64(_id(self._log_key))},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(promised["integratedTime"]),
            "inclusionPromise": {"signedEntryTimestamp": _b64(promise)},
            "inclusionProof": {
                "logIndex": "1",
                "rootHash": _b64(root),
                "treeSize": "2",
                "hashes": [_b64(sibling)],
                "checkpoint": {"envelope": f"{note}\n\u2014 {_LOG_NAME} {_b64(note_signature)}\n"},
            },
            "canonicalizedBody": _b64(body),
        }
