"""Certificates for one run: a CA, servers, clients, and one CA that nobody trusts. Made by trustme, in a folder."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import trustme


class Pki:
    """What a node's settings and clients need, as files and contexts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA(organization_name="Hare")
        self.stranger = trustme.CA(organization_name="Fox")
        self.ca = self._file("ca.pem", self.authority.cert_pem.bytes())
        self.wrong_ca = self._file("wrong.pem", self.stranger.cert_pem.bytes())
        self.serve("localhost", "127.0.0.1")

    def _file(self, name: str, octets: bytes) -> Path:
        (self.folder / name).write_bytes(octets)
        return self.folder / name

    def serve(self, *names: str, stem: str = "server") -> None:
        """`server.pem` and `server.key`, for these names."""
        self._keep(stem, self.authority.issue_cert(*names))

    def client(
        self,
        name: str = "shop",
        *,
        stem: str = "client",
        email: str = "shop@example.org",
        trusted: bool = True,
        expired: bool = False,
    ) -> tuple[Path, Path]:
        """A client's certificate with this common name, and its key."""
        authority = self.authority if trusted else self.stranger
        last_year = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=365)
        issued = authority.issue_cert(
            email, common_name=name, organization_name="Hare", not_after=last_year if expired else None
        )
        self._keep(stem, issued)
        return self.folder / f"{stem}.pem", self.folder / f"{stem}.key"

    def _keep(self, stem: str, issued: trustme.LeafCert) -> None:
        self._file(f"{stem}.pem", b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        self._file(f"{stem}.key", issued.private_key_pem.bytes())

    def settings(self, **more: object) -> dict[str, object]:
        """A listener's `tls`."""
        files = {"certificate": str(self.folder / "server.pem"), "key": str(self.folder / "server.key")}
        return {**files, **more}

    def asking(self, how: str = "required", **more: object) -> dict[str, object]:
        """The same, with clients that show certificates."""
        return self.settings(**{"client_certificate": how, "ca": str(self.ca), **more})

    def trusting(self, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """A client's context, with its own certificate if there is one."""
        context = ssl.create_default_context(cafile=self.ca)
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return context


def toml(settings: dict[str, object]) -> str:
    """As one line of a file."""
    return "{ " + ", ".join(f'{name} = "{value}"' for name, value in settings.items()) + " }"
