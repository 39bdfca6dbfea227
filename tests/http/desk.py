"""A broker in memory with a node that is pretended, and connections to its control endpoint."""

from __future__ import annotations

from leveret.broker import Broker
from leveret.clock import ManualClock
from leveret.config.config import parse
from leveret.features.standard import equip
from leveret.front_end import Peer
from leveret.protocols.http.server.adapter import ControlAdapter
from leveret.server.node.assembly import populate
from tests.harness.http import HERE, FakeNode, Line, Response

TAGS = ("administrator", "monitoring", "policymaker", "management", "impersonator", "none")
USERS = "".join(
    f'[[users]]\nname = "{tag}"\npassword = "sesame"\ntags = {[] if tag == "none" else [tag]}\n'
    for tag in TAGS
)
CONFIG = parse(
    USERS
    + '[[users]]\nname = "guest"\npassword = "guest"\ntags = ["administrator"]\n'
    + '[[users]]\nname = "größe"\npassword = "pässe:wort"\ntags = ["management"]\n'
    + '[[users]]\nname = "keyless"\ntags = ["administrator"]\n'
    + '[users.permissions]\n"/" = { write = "^amq.topic$" }\n'
)


class Desk:
    """A broker, and connections to its control endpoint."""

    def __init__(self) -> None:
        self.broker = equip(Broker(ManualClock()))
        populate(self.broker, CONFIG)
        self.node = self.broker.operations = FakeNode()

    def connect(self, peer: Peer = HERE) -> ControlAdapter:
        return Line(self.broker, CONFIG, peer).connection

    def ask(
        self,
        target: str,
        method: str = "GET",
        user: str | None = "administrator:sesame",
        peer: Peer = HERE,
        **headers: str,
    ) -> Response:
        """One request on a connection of its own. Headers by name with underscores."""
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        given.setdefault("Host", "localhost:15672")
        return Line(self.broker, CONFIG, peer).send(method, target, None, user, given).response
