"""Settings of protocols of plug-ins: those that are declared are checked as all others, the rest is passed on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from leveret.config.config import ConfigError, parse
from leveret.server import cli
from leveret.server.node.threaded import ThreadedNode
from tests.sources import ROOT

PLAIN: Final = """
from leveret.front_end import Protocol

PROTOCOL = Protocol(name="plain", first_bytes=(b"PLAIN ",), factory=lambda *said: None)
"""


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    """A folder with a protocol that declares its settings, and one that does not."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "line.py").write_text((ROOT / "examples/09_line_protocol.py").read_text())
    (folder / "plain.py").write_text(PLAIN)
    return folder


def check(plugins: Path, settings: str, **environ: str) -> int:
    file = plugins.parent / "leveret.toml"
    file.write_text(f'plugins.folders = ["{plugins}"]\n{settings}\n')
    options = cli.parser(os.environ).parse_args(["check", str(file)])
    return int(options.command(options, environ))


def test_what_a_protocol_does_not_declare_is_refused_with_what_was_meant(
    plugins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(plugins, "[protocols.line]\nenabled = true\nprefech = 5\n") == 1
    assert capsys.readouterr().err.splitlines()[1:] == [
        "protocols.line.prefech: found an unknown key, accepted: login_timeout, prefetch; did you mean 'prefetch'?"
    ]


def test_a_value_is_what_its_key_accepts_also_in_the_environment(
    plugins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(plugins, "", LEVERET_PROTOCOLS__LINE__PREFETCH="5") == 0
    assert check(plugins, "", LEVERET_PROTOCOLS__LINE__PREFETCH="0") == 1
    assert (
        "protocols.line.prefetch: found 0, accepted: a whole number from 1 to 1000" in capsys.readouterr().err
    )


def test_a_protocol_that_declares_none_gets_all_of_them(plugins: Path) -> None:
    assert check(plugins, "[protocols.plain]\nenabled = true\nanonymus = 'u'\n") == 0


@pytest.mark.parametrize("name", ["prefech", "prefetch"])
def test_a_start_refuses_what_check_refuses(plugins: Path, name: str) -> None:
    settings = {"plugins": {"folders": [str(plugins)]}, "protocols": {"line": {name: 5}}}
    aside = {"listeners": [{"address": "127.0.0.1:0"}], "http.enabled": False}
    node = ThreadedNode(parse(settings, {}, aside))
    if name == "prefetch":
        with node:
            return
    with pytest.raises(ConfigError, match="did you mean 'prefetch'"), node:
        pass
