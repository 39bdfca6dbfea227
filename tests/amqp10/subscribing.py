"""What subscribers say, as JMS clients say it."""

from __future__ import annotations

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Described, Symbol
from tests.amqp10.client import Receiver, Sender, Session
from tests.amqp10.parts import data
from tests.amqp10.peer import Peer, session_of
from tests.harness.bench import ClientBench

PATIENT = "[protocols.amqp10]\nidle_timeout_s = 0\n"
V1 = "[protocols.amqp10.addresses]\nv1 = true\n"
ADDRESS = "/exchanges/amq.topic/a.%23"
NEVER = p.TERMINUS_EXPIRY_POLICY_NEVER
LINK, SESSION, CONNECTION = "link-detach", "session-end", "connection-close"
CONFIGURATION, UNSETTLED_STATE = p.TERMINUS_DURABILITY_CONFIGURATION, p.TERMINUS_DURABILITY_UNSETTLED_STATE


def subscribed(bench: ClientBench) -> list[str]:
    """The queues that subscriptions have."""
    return sorted(name for name in bench.host.queues if name.startswith("amq."))


def publish(
    bench: ClientBench, *bodies: bytes, key: str = "a.b", exchange: str = "amq.topic", **fields: object
) -> None:
    sender: Sender = session_of(bench).sender(f"/exchanges/{exchange}/{key}")
    for body in bodies:
        sender.publish(data(body), **fields)


def session_named(bench: ClientBench, container: str = "jms", user: str = "guest") -> Session:
    return Peer(bench).open(user, container_id=container).begin()


def source(
    address: str | None = ADDRESS,
    durable: int = UNSETTLED_STATE,
    expiry: str = NEVER,
    timeout: int = 0,
    capabilities: tuple[str, ...] = ("topic",),
    **fields: object,
) -> p.Source:
    """As a JMS client writes it for a durable subscriber."""
    return p.Source(
        address=address,
        durable=durable,
        expiry_policy=Symbol(expiry),
        timeout=timeout,
        distribution_mode=Symbol("copy"),
        capabilities=[Symbol(name) for name in capabilities],
        **fields,
    )


def selector(text: str) -> dict[str, Described]:
    return {"jms-selector": Described(Symbol("apache.org:selector-filter:string"), text)}


def ask_for(session: Session, name: str = "news", credit: int = 0, **fields: object) -> Receiver:
    """Attach a receiver with a null source."""
    link = Receiver(session, name)
    session.attach(link, source=None, target=p.Target(), **fields)
    if credit:
        link.want(credit)
    return link


def receiver(session: Session, name: str = "news", credit: int = 10, **fields: object) -> Receiver:
    return session.receiver(source(**fields), credit=credit, name=name)
