"""The parameters of upstreams and of their sets, as RabbitMQ has them, to checked values.

Source: RabbitMQ's documentation of the federation plug-in, "Upstreams and their parameters".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from leveret.config.amqp_uri import Uri
from leveret.errors import PreconditionFailed
from leveret.features.transfers.definition import AckMode
from leveret.features.transfers.parameter_reader import ParameterReader, object_in, require_known
from leveret.values import Json

MAX_HOPS: Final = 1
HOPS_MAX: Final = 1000
MEMBERS_MAX: Final = 1000
NEVER: Final = "never"
MEMBER_KEYS: Final = (
    "ack-mode",
    "bind-nowait",
    "channel-use-mode",
    "consumer-tag",
    "exchange",
    "expires",
    "max-hops",
    "message-ttl",
    "prefetch-count",
    "queue",
    "queue-type",
    "reconnect-delay",
    "resource-cleanup-mode",
    "trust-user-id",
)
KEYS: Final = (*MEMBER_KEYS, "uri")


@attrs.frozen
class Upstream:
    """A broker or virtual host that messages come from, and how."""

    name: str
    uris: tuple[Uri, ...]
    exchange: str | None  # of another name than the one here
    queue: str | None
    consumer_tag: str  # of links of queues
    prefetch: int
    reconnect_s: float | None  # None: it does not try again
    max_hops: int  # links that a message may go over
    expires_ms: int | None  # the upstream queue of an exchange is deleted when it is unused for so long
    ttl_ms: int | None  # of messages there
    queue_type: str
    trusts_user_id: bool
    ack_mode: AckMode
    bind_nowait: bool
    cleans_up: bool  # what is upstream is deleted when the link is no longer wanted

    @property
    def of_its_queue(self) -> tuple[object, ...]:
        """The settings that the upstream queue of an exchange is declared with."""
        return self.expires_ms, self.ttl_ms, self.queue_type


@attrs.frozen
class SetMember:
    """A member of a set of upstreams: the name of an upstream, and settings that replace its own."""

    upstream: str
    settings: Mapping[str, Json] = attrs.field(factory=dict)


def upstream_of(name: str, value: Json, settings: Mapping[str, Json] | None = None) -> Upstream:
    """Read the parameter of an upstream; `settings` of a set replace its own. Raises PreconditionFailed."""
    given = object_in(value, "an upstream")
    for key in given:
        require_known(key, KEYS)
    parameter = ParameterReader({**given, **(settings or {})})
    prefetch, reconnect_s = parameter.prefetch("prefetch-count"), parameter.reconnect_s()
    hops = parameter.number("max-hops", MAX_HOPS, HOPS_MAX)
    if hops != int(hops) or hops < 1:
        raise PreconditionFailed("key 'max-hops' should be a whole number from 1")
    parameter.one_of("channel-use-mode", "multiple", "multiple", "single")
    return Upstream(
        name,
        parameter.uris("uri"),
        parameter.text("exchange") or None,
        parameter.text("queue") or None,
        parameter.text("consumer-tag") or f"federation-link-{name}"[:255],
        prefetch,
        reconnect_s,
        int(hops),
        parameter.count("expires"),
        parameter.count("message-ttl"),
        parameter.one_of("queue-type", "classic", "classic", "quorum"),
        parameter.flag("trust-user-id"),
        parameter.ack_mode(),
        parameter.flag("bind-nowait"),
        parameter.one_of("resource-cleanup-mode", "default", "default", NEVER) != NEVER,
    )


def members_of(value: Json) -> tuple[SetMember, ...]:
    """Read the parameter of a set of upstreams. Raises PreconditionFailed."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not len(value) <= MEMBERS_MAX:
        raise PreconditionFailed("the value of a set of upstreams should be a list of objects")
    return tuple(map(_member, value))


def _member(value: Json) -> SetMember:
    given = dict(object_in(value, "a member of a set"))
    name = given.pop("upstream", None)
    if not isinstance(name, str) or not name:
        raise PreconditionFailed("key 'upstream' should be the name of an upstream")
    for key in given:
        require_known(key, MEMBER_KEYS)
    upstream_of(name, {"uri": "amqp://"}, given)
    return SetMember(name, given)
