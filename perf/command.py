"""Turn command-line options into a plan, run it, and print its results."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence

import attrs

from leveret.perf import report
from leveret.perf.block import HEAD, PACKET_IDS, STAMP
from leveret.perf.conductor import Conductor, Second
from leveret.perf.drivers import DRIVERS, name_for
from leveret.perf.errors import PerfError
from leveret.perf.plan import Plan
from leveret.perf.workers import run


def perf(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    try:
        if options.churn:
            from leveret.perf.churn import churn

            told, code = churn(plan_of(options), options.churn)
        else:
            plan = plan_of(options)
            told, code = measure(plan, _quiet if options.quiet else report.Lines(plan, sys.stderr).second)
    except PerfError as error:
        print(f"leveret: {error.text}", file=sys.stderr)
        return error.code
    _tell(told, options.json)
    return code


def _quiet(second: Second) -> None:
    pass


def measure(plan: Plan, on_second: Callable[[Second], None] = _quiet) -> tuple[report.Told, int]:
    """Run a plan and return its report, and the exit code. Raises PerfError."""
    conductor = Conductor(plan, on_second)
    preparation = DRIVERS[plan.protocol].preparation(plan)
    try:
        preparation.declare()
        sights = run(plan, conductor)
    finally:
        preparation.remove()
    verdict = report.verdict(plan, conductor.outcome(), sights) if plan.verify else None
    told = report.told(plan, conductor.outcome(), verdict)
    return told, 1 if verdict is not None and any(verdict.values()) else 0


def _tell(told: report.Told, where: str | None) -> None:
    if where != "-":
        print(report.text(told))
    if where == "-":
        print(json.dumps(told, indent=2))
    elif where:
        with open(where, "w") as file:
            json.dump(told, file, indent=2)
            file.write("\n")


def plan_of(options: argparse.Namespace) -> Plan:
    """Return the plan for some options. Raises PerfError for combinations that make no sense."""
    least = min(options.size.octets)
    if options.verify and least < HEAD:
        raise PerfError(f"--verify needs bodies of {HEAD} octets or more")
    if options.ack_every and options.prefetch and options.ack_every > options.prefetch:
        raise PerfError(
            f"--ack-every {options.ack_every} is never reached with --prefetch {options.prefetch}"
        )
    if options.think and not options.ack_every:
        raise PerfError("--think needs --ack-every: without it, the broker does not wait for consumers")
    if options.single_acks and not options.ack_every:
        raise PerfError("--single-acks needs --ack-every: without it, nothing is acknowledged")
    if not (options.publishers or options.consumers):
        raise PerfError("there is neither a publisher nor a consumer")
    if options.processes > options.publishers + options.consumers and not options.churn:
        raise PerfError("there are more processes than publishers and consumers")
    protocol = options.protocol or name_for(options.url.scheme)
    by_topic = DRIVERS[protocol].by_topic
    if by_topic:
        _check_topics(options)
    arguments = dict(options.argument)
    if options.queue_type:
        arguments["x-queue-type"] = options.queue_type
    return Plan(
        url=attrs.evolve(options.url, ca_file=options.ca_file, verify=not options.insecure),
        protocol=protocol,
        by_topic=by_topic,
        publishers=options.publishers,
        consumers=options.consumers,
        per_connection=options.per_connection,
        queues=options.queues,
        queue_name=_numbered(options.queue_name, options.queues),
        exchange=options.exchange,
        exchange_type=options.type,
        keys=options.keys,
        key_count=options.key_count,
        bind=options.bind or options.keys,
        address=options.address,
        share=options.share,
        qos=options.qos,
        arguments=arguments,
        predeclared=options.predeclared,
        delete=options.delete,
        keep=options.keep,
        sizes=options.size,
        stamped=not options.no_stamps and least >= STAMP,
        verify=options.verify,
        persistent=options.persistent,
        mandatory=options.mandatory,
        real=options.real,
        single_writes=options.single_writes,
        rate=_rate(options.rate, options.total_rate, options.publishers),
        confirms=options.confirms,
        prefetch=options.prefetch,
        ack_every=options.ack_every,
        single_acks=options.single_acks,
        think_s=options.think,
        messages=options.messages,
        time_s=options.time,
        warm_up_s=options.warm_up,
        drain_s=options.drain,
        processes=options.processes,
    )


def _check_topics(options: argparse.Namespace) -> None:
    """Raise PerfError for what MQTT has not."""
    if options.exchange or options.argument or options.queue_type:
        raise PerfError(
            "MQTT has topics, and neither exchanges nor queues: --keys, --bind and --share name them"
        )
    if options.per_connection > 1:
        raise PerfError("in MQTT each publisher and consumer has a connection: no --per-connection")
    if options.real or options.mandatory or options.churn:
        raise PerfError("--real, --mandatory and --churn are of AMQP")
    if options.confirms > PACKET_IDS:
        raise PerfError(f"in MQTT at most {PACKET_IDS} messages are unconfirmed")


def _numbered(pattern: str, count: int) -> str:
    if count > 1 and "%d" not in pattern:
        raise PerfError(f"{count} queues cannot all be called '{pattern}': %d stands for a number")
    return pattern


def _rate(
    each: Sequence[tuple[float, float]], total: float, publishers: int
) -> tuple[tuple[float, float], ...]:
    if each and total:
        raise PerfError("--rate is of each publisher, --total-rate of all: give one of them")
    return ((total / max(publishers, 1), 1.0),) if total else tuple(each)
