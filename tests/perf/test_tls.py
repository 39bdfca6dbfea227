"""Loads over TLS, and whom they trust."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.perf.command import measure, plan_of
from leveret.perf.errors import UNREACHABLE, PerfError
from tests.interop.conftest import Start
from tests.perf.conftest import options
from tests.perf.test_loads import VERIFIED
from tests.tls.pki import Pki, toml

pytestmark = pytest.mark.interop


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


@pytest.fixture
def url(pki: Pki, node_with: Start) -> str:
    node = node_with(f'listeners = [{{ address = "127.0.0.1:0", tls = {toml(pki.settings())} }}]')
    return node.url.replace("amqp://", "amqps://")


@pytest.mark.parametrize("protocol", ["0-9-1", "1.0"])
@pytest.mark.parametrize(
    "said", ["--confirms 100 --ack-every 50", "--size 300000 --messages 20 --confirms 3"]
)
def test_all_that_is_sent_arrives(url: str, pki: Pki, protocol: str, said: str):
    trusting = f"--url {url} --ca-file {pki.ca} --protocol {protocol}"
    told, _ = measure(plan_of(options(f"{trusting} --messages 2000 --verify {said}")))
    assert told["verified"] == VERIFIED
    assert told["messages"]["received"] == told["messages"]["sent"] >= 20


def test_who_is_not_trusted_is_not_talked_to(url: str, pki: Pki):
    with pytest.raises(PerfError, match="--ca-file") as caught:
        measure(plan_of(options(f"--url {url} --ca-file {pki.wrong_ca} --messages 1")))
    assert caught.value.code == UNREACHABLE
    told, _ = measure(plan_of(options(f"--url {url} --insecure --messages 1")))
    assert told["messages"]["received"] == 1
