"""Brokers that serve over TLS beside a plain listener: their certificate, and their settings."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

import trustme

LEVERET: Final = """
[[listeners]]
address = "127.0.0.1:{plain}"

[[listeners]]
address = "127.0.0.1:{secured}"
tls = {{ certificate = "server.pem", key = "server.key" }}
"""
RABBITMQ: Final = """
listeners.ssl.default = {port}
ssl_options.cacertfile = {folder}/authority.pem
ssl_options.certfile = {folder}/server.pem
ssl_options.keyfile = {folder}/server.key
ssl_options.verify = verify_none
"""


def certified(folder: Path) -> ssl.SSLContext:
    """Create a server's certificate (elliptic curve) and its authority, `authority.pem`, in the folder, to be read by
    servers of any user, and return a client context that trusts it."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    issued = authority.issue_cert("localhost")
    issued.private_key_pem.write_to_path(folder / "server.key")
    (folder / "server.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    folder.chmod(0o755)
    for each in folder.iterdir():
        each.chmod(0o644)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context
