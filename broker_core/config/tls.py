"""The tables `tls`: one for what the node serves, and one for the servers that it asks, with the same names of keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final

import attrs

from leveret.config.records import Record, RecordOf, key
from leveret.config.types import FilePath, Flag, OneOf, Problem, Secret, TableOf

MINIMUM_VERSION: Final = OneOf("1.2", "1.3")
LOGIN_FROM: Final = ("distinguished_name", "common_name", "san_dns", "san_email", "san_uri", "san_ip")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class CertificateSettings(Record):
    """A certificate for further names, which clients ask for by SNI."""

    certificate: Path = key(
        FilePath(), "The file (PEM) with the certificate, followed by the intermediate ones up to its CA."
    )
    private_key: Path = key(FilePath(), "The file (PEM) with its private key.", name="key")
    key_password: str | None = key(Secret(), "The password of the private key, if it has one.", None)
    key_password_file: Path | None = key(
        FilePath(), "The file with that password; its last line end is dropped.", None
    )

    def contradictions(self) -> Iterator[Problem]:
        yield from _two_passwords(self.key_password, self.key_password_file)


def _two_passwords(password: str | None, file: Path | None) -> Iterator[Problem]:
    if password is not None and file is not None:
        yield Problem("key_password_file", "key_password as well", "one of the two")


NO_NAMES: Final[Mapping[str, CertificateSettings]] = {}


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TlsSettings(CertificateSettings):
    """TLS, from a connection's first byte, for all or for those that begin with it; without this table all are plain.

    The files are read at the start and again at every reload, for connections that are opened afterwards.
    """

    renamed: ClassVar[Mapping[str, str]] = {"client_ca": "ca"}

    required: bool = key(
        Flag(),
        "Whether every connection has to begin with TLS; if not, one that begins with anything else is plain. False "
        "while clients change over.",
        True,
    )
    minimum_version: str = key(
        MINIMUM_VERSION,
        "The oldest version of TLS that is accepted. 1.3 where every client has it, and where certificates of "
        "clients expire within hours.",
        "1.2",
    )
    server_names: Mapping[str, CertificateSettings] = key(
        TableOf(RecordOf(CertificateSettings), "a table for each name"),
        "Other certificates, by the name that clients ask for (SNI). Those of a node whose names are not all in one "
        "certificate.",
        NO_NAMES,
    )
    client_certificate: str = key(
        OneOf("none", "optional", "required"),
        'Whether clients are asked for a certificate, and must have one. "optional" where some log in by it, '
        '"required" where none may do without.',
        "none",
    )
    ca: Path | None = key(
        FilePath(), "The file (PEM) with the CAs that may have signed clients' certificates.", None
    )
    login_from: str = key(
        OneOf(*LOGIN_FROM),
        "The part of a client's certificate that names the user that EXTERNAL logs in. Another where users are called "
        "by that part alone.",
        "distinguished_name",
    )

    def contradictions(self) -> Iterator[Problem]:
        yield from super().contradictions()
        if self.ca is None and self.client_certificate != "none":
            yield Problem("ca", "nothing", f'a file, as client_certificate is "{self.client_certificate}"')
        if self.ca is not None and self.client_certificate == "none":
            yield Problem("client_certificate", '"none"', '"optional" or "required", as there is a ca')
        if self.client_certificate == "required" and not self.required:
            yield Problem("required", "false", 'true, as client_certificate is "required"')


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PeerTlsSettings(Record):
    """TLS with a server that the node asks, whose certificate is always verified.

    The files are read again when they have changed.
    """

    ca: Path | None = key(
        FilePath(),
        "The file (PEM) with the CAs that may have signed the server's certificate, for one of your own; without it "
        "those of the system.",
        None,
        reload=True,
    )
    certificate: Path | None = key(
        FilePath(),
        "The file (PEM) with the node's own certificate, where the server asks for one.",
        None,
        reload=True,
    )
    private_key: Path | None = key(
        FilePath(), "The file (PEM) with its private key.", None, reload=True, name="key"
    )
    minimum_version: str = key(
        MINIMUM_VERSION,
        "The oldest version of TLS that is spoken. 1.3 to refuse servers without it.",
        "1.2",
        reload=True,
    )

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are named here."""
        return tuple(each for each in (self.ca, self.certificate, self.private_key) if each is not None)

    def contradictions(self) -> Iterator[Problem]:
        if (self.certificate is None) != (self.private_key is None):
            missing = "certificate" if self.certificate is None else "key"
            yield Problem(missing, "nothing", "both a certificate and its key, or neither")


SYSTEM: Final = PeerTlsSettings()
