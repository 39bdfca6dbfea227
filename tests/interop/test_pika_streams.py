"""The page on streams tells the truth: its program runs, with pika, against a node."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.interop.conftest import RunningNode

pytestmark = pytest.mark.interop

PAGE = (Path(__file__).parents[2] / "docs" / "streams.md").read_text()


def test_the_program_on_the_page_reads_what_it_wrote(node: RunningNode, capsys: pytest.CaptureFixture[str]):
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    exec(program.replace("localhost:5672", f"127.0.0.1:{node.port}"), {})
    assert capsys.readouterr().out.splitlines() == ["0 event 0", "1 event 1", "2 event 2"]
    assert node.ready("events") == 3
