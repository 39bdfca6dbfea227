"""Certificates: whom the source trusts, and what it shows itself."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.pipeline.client import Client
from leveret.pipeline.errors import BadOption, Unreachable
from leveret.pipeline.options import Use, read_options
from tests.interop.conftest import need_command
from tests.pipeline.bulk import FakeBroker, serving

OPENSSL = need_command("openssl", "openssl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a broker and of a client, each its own authority."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("broker", "client"):
        command = [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-days", "3650", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        command += ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
        subprocess.run(command, check=True, capture_output=True)
    (folder / "both.pem").write_text(
        (folder / "client.pem").read_text() + (folder / "client.key").read_text()
    )
    locked = [OPENSSL, "ec", "-aes128", "-passout", "pass:x", "-in", str(folder / "client.key")]
    subprocess.run([*locked, "-out", str(folder / "locked.key")], check=True, capture_output=True)
    return folder


@pytest.fixture
def broker(folder: Path) -> Iterator[FakeBroker]:
    """Lets in who shows the client's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(folder / "broker.pem", folder / "broker.key")
    context.load_verify_locations(folder / "client.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with serving(FakeBroker(), context) as broker:
        broker.stream("orders")
        yield broker


def client(broker: FakeBroker, **given: object) -> Client:
    names = {
        "ca": "tls.caFile",
        "cert": "tls.certFile",
        "key": "tls.keyFile",
        "version": "tls.minimumVersion",
    }
    said = {names[name]: str(value) for name, value in given.items()}
    asked = {"endpoints": broker.url, "subscribe": "orders", "retrySeconds": "0", **said}
    return Client(read_options(asked, Use.BATCH), "guest")


@pytest.mark.parametrize("files", [{"cert": "client.pem", "key": "client.key"}, {"cert": "both.pem"}])
def test_a_certificate_is_shown(broker: FakeBroker, folder: Path, files: dict[str, str]):
    asking = client(broker, ca=folder / "broker.pem", **{name: folder / file for name, file in files.items()})
    assert [each.name for each in asking.listed()] == ["orders"]
    asking.close()


def test_who_shows_none_is_not_let_in(broker: FakeBroker, folder: Path):
    with pytest.raises(Unreachable):
        client(broker, ca=folder / "broker.pem").listed()
    assert broker.asked == []


def test_a_broker_that_is_not_trusted_is_not_asked(broker: FakeBroker, folder: Path):
    with pytest.raises(Unreachable, match=r"see the option tls\.caFile"):
        client(broker, cert=folder / "both.pem").listed()
    assert broker.asked == []


def test_a_broker_with_an_old_version_only_is_not_asked(broker: FakeBroker, folder: Path):
    with pytest.raises(Unreachable, match=r"(?i)version"):
        client(broker, ca=folder / "broker.pem", cert=folder / "both.pem", version="1.3").listed()
    assert broker.asked == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"cert": "none.pem"}, "none.pem' cannot be used here"),
        ({"cert": "client.pem"}, "client.pem' cannot be used here"),
        ({"cert": "client.pem", "key": "broker.key"}, "with tls.keyFile '"),
        ({"cert": "client.pem", "key": "locked.key"}, "it needs a key without a password"),
        ({"key": "client.key"}, "option tls.keyFile needs tls.certFile"),
    ],
)
def test_files_that_make_no_sense_are_named(
    broker: FakeBroker, folder: Path, files: dict[str, str], said: str
):
    with pytest.raises(BadOption, match=said):
        client(broker, **{name: folder / file for name, file in files.items()}).listed()
