"""Keys of tokens in a running node: read at the start, at a reload, and by `leveret check`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from leveret.config.config import Config, ConfigError, load, parse
from leveret.server.node.node import Node
from leveret.server.node.start_check import rehearse

from .issuer import public_jwk, settings, token, write_keys

pytestmark = pytest.mark.system

NODE = '[[listeners]]\naddress = "127.0.0.1:0"\n[http]\nenabled = false\n'
NOW = 4_000_000_000  # as good as never


def believes(node: Node, algorithm: str) -> bool:
    access = node.broker.access
    given = token(algorithm, exp=NOW, iat=None)
    return access.is_token(given) and access.authenticate("", given) is not None


def run(config: Path, test: Callable[[Node], Awaitable[None]]) -> None:
    def read() -> Config:
        return load(config)

    async def main() -> None:
        async with Node(read(), read) as node:
            await test(node)

    trio.run(main)


def test_a_reload_takes_new_keys_and_new_settings(tmp_path: Path):
    config = tmp_path / "leveret.toml"
    keys = write_keys(tmp_path, [public_jwk("RS256")])
    config.write_text(NODE)

    async def test(node: Node) -> None:
        assert not believes(node, "RS256")
        config.write_text(NODE + settings(keys))
        assert "oauth.jwks_file" in node.admin.reload().changed
        assert believes(node, "RS256")
        write_keys(tmp_path, [public_jwk("ES256")])
        assert node.admin.reload().refused == ()
        assert not believes(node, "RS256")
        assert believes(node, "ES256")
        config.write_text(NODE + settings(keys, 'algorithms = ["RS256"]'))
        assert node.admin.reload().refused == ("oauth",), "there is no key for that"
        assert believes(node, "ES256")
        config.write_text(NODE)
        node.admin.reload()
        assert not believes(node, "ES256")

    run(config, test)


def test_keys_that_cannot_be_read_any_more_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    config = tmp_path / "leveret.toml"
    keys = write_keys(tmp_path)
    config.write_text(NODE + settings(keys))

    async def test(node: Node) -> None:
        keys.write_text("broken")
        assert node.admin.reload().refused == ("oauth",)
        assert believes(node, "RS256")

    run(config, test)
    assert "those from before stay" in caplog.text


def test_a_node_does_not_start_and_is_not_checked_well_without_its_keys(tmp_path: Path):
    config = parse(NODE + settings(tmp_path / "none.json"))

    async def main() -> None:
        async with Node(config):
            raise AssertionError("it has started")

    for attempt in (lambda: trio.run(main), lambda: rehearse(config)):
        with pytest.raises(ConfigError, match=r"oauth\.jwks_file"):
            attempt()
