"""A message whose octets change while no node runs: nobody gets it as it is now, and everybody gets the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from .actors import Publisher
from .line import Line091
from .node import SERVE, Node
from .scene import Scene, compare, declare

MESSAGES: Final = 20
SPOILT: Final = 7  # which of them
SIZE: Final = 500
QUEUE: Final = "plain"


@attrs.frozen
class Damage:
    """What was found after one octet of a message was changed on disk."""

    complaints: list[str]
    name: str  # of the message
    log: str


def damaged(folder: Path, program: Sequence[str] = SERVE) -> Damage:
    """Publish some messages, stop the node properly, spoil one of them in the file, and look."""
    scene = Scene(1)
    node = Node(folder, program)
    try:
        line = Line091(node.port)
        declare(line, line.channel(1))
        line.drop()
        publisher = Publisher(scene, node.port, "publisher")
        messages = [attrs.evolve(scene.message("publisher"), size=SIZE) for _ in range(MESSAGES)]
        for message in messages:
            publisher.publish(message, "", QUEUE, [QUEUE])
        publisher.line.wait(lambda: not publisher.unconfirmed, "confirms")
        publisher.line.drop()
        node.stop()
    finally:
        node.kill()
    scene.ledger.restarted(closed=True)
    _spoil(folder, messages[SPOILT].body)
    log = compare(scene, folder, program)
    return Damage(scene.ledger.complaints, messages[SPOILT].name, log)


def _spoil(folder: Path, body: bytes) -> None:
    """Change one bit of the last octets of a body, wherever it is in the folder."""
    tail = body[-SIZE // 4 :]
    for path in filter(Path.is_file, folder.rglob("*")):
        octets = bytearray(path.read_bytes())
        at = octets.find(tail)
        if at >= 0:
            octets[at + len(tail) // 2] ^= 4
            path.write_bytes(octets)
            return
    raise AssertionError("the message is in none of the files")
