"""Certificates of servers, from an authority that was made up."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority that was made up for the tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "An authority of tests")])
        self.file = folder / "ca.pem"
        certificate = self._builder(self._name, self._key.public_key())
        certificate = certificate.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        certificate = certificate.add_extension(identifier, critical=False)
        usage = dict.fromkeys(
            ["digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
             "encipher_only", "decipher_only"], False,
        )  # fmt: skip
        certificate = certificate.add_extension(
            x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True
        )
        signed = certificate.sign(self._key, hashes.SHA256())
        self.file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        self._identifier = identifier

    def server_context(self, *names: str) -> ssl.SSLContext:
        """Return what a server with these names needs."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier)
        builder = self._builder(subject, key.public_key()).add_extension(alternatives, critical=False)
        certificate = builder.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256())
        file = self._folder / f"{names[0]}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def client_context(self) -> ssl.SSLContext:
        """Return what a client needs that trusts this authority."""
        return ssl.create_default_context(cafile=str(self.file))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
        )
