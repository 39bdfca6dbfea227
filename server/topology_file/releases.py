"""Finds what a release of RabbitMQ would refuse of a topology, by the rows of its profile and its release notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from leveret.config.compat import PROFILES, Compat, Retired, compat
from leveret.errors import Failure
from leveret.server.topology_file.effective import EffectiveTopology
from leveret.server.topology_file.model import BINDING, POLICY, QUEUE, Thing

CODE: Final = "refused-by-release"
TARGETS: Final = tuple(name for name in PROFILES if name.startswith("rabbitmq-"))
NO_MIRRORS: Final = (
    "rabbitmq-4",
    "rabbitmq-4.0",
    "rabbitmq-4.1",
    "rabbitmq-4.2",
    "rabbitmq-4.3",
    "rabbitmq-4.4",
)
ONE_STORAGE: Final = ("rabbitmq-4", "rabbitmq-4.3", "rabbitmq-4.4")  # classic queues have version 2 alone
MIRRORING: Final = frozenset(
    ("ha-mode", "ha-params", "ha-sync-mode", "ha-promote-on-shutdown", "ha-promote-on-failure")
)

Found = Iterator[tuple[Thing, str, str]]  # the object, the mistake, the advice


def refused_by(seen: EffectiveTopology, release: str) -> Found:
    """Find what the release does not take. Raises ValueError if there is no such profile."""
    rows = compat(release)
    for queue in seen.topology.of(QUEUE):
        for what, advice in _of_queue(queue, rows, release):
            yield queue, f"{queue}: {release} refuses {what}", advice
    for binding in seen.topology.of(BINDING):
        _, host, source, _, _, key, _ = binding.key
        try:
            rows.check_binding_key(seen.type_of(host, source), key)
        except Failure as failure:
            yield binding, f"{binding}: {release} refuses it: {failure}", "use `#` as the last word only"
    for policy in seen.topology.of(POLICY):
        definition = policy.settings.get("definition")
        keys = sorted(MIRRORING & set(definition)) if isinstance(definition, Mapping) else []
        if keys and release in NO_MIRRORS:
            what = f"{policy}: {release} has no mirrored queues: {', '.join(keys)}"
            yield policy, what, "use quorum queues or streams"


def _of_queue(queue: Thing, rows: Compat, release: str) -> Iterator[tuple[str, str]]:
    given = queue.settings.get("arguments")
    arguments = given if isinstance(given, Mapping) else {}
    try:
        rows.check_transient_queue(queue.settings.get("durable") is True, False)
    except Retired:
        yield (
            "queues that are neither durable nor exclusive",
            "declare it durable, with x-expires if it is to go",
        )
    try:
        rows.check_queue_arguments(queue.name, queue.host, dict(arguments))
    except Failure as failure:
        yield f"its arguments: {failure}", "remove the argument, or declare a quorum queue"
    if release not in ONE_STORAGE:
        return
    if "x-queue-mode" in arguments:
        yield "x-queue-mode", "remove it"
    if arguments.get("x-queue-version") == 1:
        yield "x-queue-version 1", "remove it"
    if "x-queue-master-locator" in arguments:
        yield "x-queue-master-locator", "use x-queue-leader-locator"
