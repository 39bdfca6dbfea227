"""Parse the command line of `leveret perf`. The rest is loaded only when a load runs.

Exit codes are those of `leveret`: 0 done, 1 refused, failed, or (with --verify) not all right, 2 wrong usage, 3 the
broker cannot be reached or does not let us in. Ctrl-C ends a load, whose summary is then printed; its exit code is 0.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from leveret.perf.drivers import DRIVERS

if TYPE_CHECKING:
    from leveret.perf.plan import Sizes, Url

TEXT: Final = "Load a broker over AMQP 0-9-1, AMQP 1.0 or MQTT, and measure rates and latencies."
EXAMPLES: Final = """\
examples:
  leveret perf                                                     as fast as it goes, until Ctrl-C
  leveret perf --time 30 --warm-up 5 --confirms 1000 --ack-every 50 --persistent
  leveret perf --rate 5000 --time 30 --json -                      how long messages take at 5 000 a second
  leveret perf --rate 1000:10,5000:2 --size 100-2000               ten quiet seconds, two busy ones, in turn
  leveret perf --publishers 100 --consumers 100 --queues 100 --processes 2
  leveret perf --exchange prices --type topic --keys 'eu.%d' --key-count 50 --bind 'eu.#'
  leveret perf --protocol 1.0 --confirms 1000 --prefetch 500 --ack-every 100
  leveret perf --url mqtt://127.0.0.1 --confirms 1000 --prefetch 500 --ack-every 1
  leveret perf --url mqtt://127.0.0.1 --keys devices/%d/out --key-count 1000 --bind 'devices/+/out' --consumers 10
  leveret perf --messages 100000 --verify                          was anything lost, doubled, or out of order?
  leveret perf --churn connections --rate 50 --time 10             how long does it take to connect?

Each publisher and each consumer has a channel (in 1.0, a session) of its own. Publisher and consumer N have queue N, if
there is one each; where there are more queues, each of them has several, and where there are fewer, they share them.
In MQTT each is a client, and a queue's number is a topic to which its consumers subscribe.
Queues that were not there are made, and deleted at the end. With --rate, the clock of a message starts when it was due.

exit codes: 0 done, 1 refused, failed or (with --verify) not all right, 2 wrong usage, 3 not reached or not let in.
"""


class Perf:
    """The command that `leveret` registers."""

    text = TEXT

    def add_to(self, parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
        parser.description = TEXT
        parser.epilog = EXAMPLES
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.set_defaults(command=_run)
        _add_broker(parser, environ)
        _add_ends(parser)
        _add_topology(parser)
        _add_messages(parser)
        _add_acknowledging(parser)
        _add_length(parser)


COMMAND: Final = Perf()


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from leveret.perf.command import perf

    return perf(options)


def _add_broker(parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    adding = parser.add_argument_group("the broker")
    adding.add_argument(
        "--url",
        metavar="URL",
        type=_url,
        default=environ.get("LEVERET_AMQP_URL") or "amqp://guest:guest@127.0.0.1:5672/",
        help="amqp[s]:// or mqtt[s]://USER:PASSWORD@HOST:PORT/VHOST"
        " (default: $LEVERET_AMQP_URL, else guest at this machine)",
    )
    adding.add_argument(
        "--protocol",
        choices=[*DRIVERS],
        help="mqtt is version 3.1.1 (default: that of the URL, 0-9-1 or mqtt)",
    )
    adding.add_argument("--ca-file", metavar="FILE", help="certificates to trust with amqps and mqtts")
    adding.add_argument("--insecure", action="store_true", help="trust any certificate")


def _add_ends(parser: argparse.ArgumentParser) -> None:
    adding = parser.add_argument_group("publishers and consumers")
    adding.add_argument("--publishers", metavar="N", type=_whole, default=1, help="default: 1")
    adding.add_argument("--consumers", metavar="N", type=_whole, default=1, help="default: 1")
    adding.add_argument(
        "--per-connection",
        metavar="N",
        type=_positive,
        default=1,
        help="publishers, or consumers, that share a connection (default: 1)",
    )
    adding.add_argument(
        "--processes", metavar="N", type=_positive, default=1, help="that make the load (default: 1)"
    )
    adding.add_argument(
        "--churn",
        choices=["connections", "channels", "queues"],
        help="no messages: each of --publishers opens and closes these, one after another, --rate a second",
    )


def _add_topology(parser: argparse.ArgumentParser) -> None:
    adding = parser.add_argument_group("queues and exchange")
    adding.add_argument("--queues", metavar="N", type=_positive, default=1, help="default: 1")
    adding.add_argument(
        "--queue-name", metavar="PATTERN", default="perf-%d", help="%%d: its number (default: perf-%%d)"
    )
    adding.add_argument(
        "--queue-type", metavar="TYPE", help="classic, quorum, stream; short for --argument x-queue-type=TYPE"
    )
    adding.add_argument(
        "--argument",
        metavar="KEY=VALUE",
        type=_pair,
        action="append",
        default=[],
        help="argument of the queues, such as x-max-length=1000; may be repeated",
    )
    adding.add_argument(
        "--exchange", metavar="NAME", default="", help="where to publish (default: straight to the queues)"
    )
    adding.add_argument("--type", metavar="TYPE", default="direct", help="kind of exchange (default: direct)")
    adding.add_argument(
        "--keys",
        metavar="PATTERN",
        default="perf-%d",
        help="routing keys, with an exchange (default: perf-%%d)",
    )
    adding.add_argument(
        "--key-count", metavar="N", type=_positive, default=0, help="number of keys (default: one a queue)"
    )
    adding.add_argument(
        "--bind",
        metavar="PATTERN",
        help="binding key of each queue, %%d being its number (default: the pattern of the keys)",
    )
    adding.add_argument(
        "--address",
        metavar="PATTERN",
        default="/queues/%s",
        help="address of a queue in 1.0 (default: /queues/%%s; RabbitMQ 3 wants /amq/queue/%%s)",
    )
    adding.add_argument(
        "--share", metavar="NAME", default="", help="in MQTT: consumers share their subscription by this name"
    )
    adding.add_argument(
        "--predeclared", action="store_true", help="declare nothing: queues and exchange exist"
    )
    adding.add_argument(
        "--delete", action="store_true", help="delete queues and exchange of these names first"
    )
    adding.add_argument("--keep", action="store_true", help="keep the queues and the exchange")


def _add_messages(parser: argparse.ArgumentParser) -> None:
    adding = parser.add_argument_group("messages")
    adding.add_argument(
        "--size",
        metavar="OCTETS",
        type=_sizes,
        default="100",
        help="size of bodies: one, several in turn (100,1000), a range at random (100-2000) (default: 100)",
    )
    adding.add_argument(
        "--rate",
        metavar="RATE",
        type=_rates,
        default=(),
        help="messages/s of each publisher; RATE:SECONDS,... varies it (default: as fast as it goes)",
    )
    adding.add_argument(
        "--total-rate", metavar="RATE", type=float, default=0.0, help="rate of all publishers together"
    )
    adding.add_argument(
        "--persistent", action="store_true", help="persistent messages, durable queues and exchange"
    )
    adding.add_argument(
        "--mandatory", action="store_true", help="have messages that no queue takes returned, and count them"
    )
    adding.add_argument(
        "--real",
        action="store_true",
        help="give each message ids, a time and a trace header of its own, as applications do",
    )
    adding.add_argument(
        "--single-writes", action="store_true", help="write each message by itself, as most clients do"
    )
    adding.add_argument(
        "--no-stamps",
        action="store_true",
        help="leave bodies alone: the latency of deliveries is not measured (nor where --size is below 8)",
    )
    adding.add_argument(
        "--verify",
        action="store_true",
        help="number messages (in bodies of 20 octets or more): tell what is lost, doubled or out of order",
    )


def _add_acknowledging(parser: argparse.ArgumentParser) -> None:
    adding = parser.add_argument_group("acknowledging")
    adding.add_argument(
        "--qos",
        type=int,
        choices=[1, 2],
        default=1,
        help="in MQTT: of publishers with --confirms, consumers with --ack-every (default: 1; without these: 0)",
    )
    adding.add_argument(
        "--confirms",
        metavar="WINDOW",
        type=_whole,
        default=0,
        help="unconfirmed (in 1.0: unsettled) messages of a publisher, at most (default: 0, none is confirmed)",
    )
    adding.add_argument(
        "--prefetch",
        metavar="N",
        type=_whole,
        default=200,
        help="unacknowledged messages of a consumer; in 1.0 its credit (default: 200; 0: any number)",
    )
    adding.add_argument(
        "--ack-every",
        metavar="N",
        type=_whole,
        default=0,
        help="acknowledge so many at a time (default: 0: none, they are settled when delivered)",
    )
    adding.add_argument(
        "--single-acks", action="store_true", help="acknowledge each message by itself, as most clients do"
    )
    adding.add_argument(
        "--think", metavar="SECONDS", type=float, default=0.0, help="that consumers take for each message"
    )


def _add_length(parser: argparse.ArgumentParser) -> None:
    adding = parser.add_argument_group("length and output")
    adding.add_argument(
        "--messages",
        metavar="N",
        type=_whole,
        default=0,
        help="messages of each publisher or, without publishers, of all consumers (default: no limit)",
    )
    adding.add_argument("--time", metavar="SECONDS", type=float, default=0.0, help="default: until Ctrl-C")
    adding.add_argument(
        "--warm-up", metavar="SECONDS", type=float, default=0.0, help="time before that which does not count"
    )
    adding.add_argument(
        "--drain",
        metavar="SECONDS",
        type=float,
        default=1.0,
        help="time without messages after which no more are expected at the end (default: 1)",
    )
    adding.add_argument(
        "--json",
        metavar="FILE",
        help="write the summary as JSON (docs/perf.md has its shape); -: to standard output",
    )
    adding.add_argument("--quiet", action="store_true", help="no line each second")


# Types of arguments.


def _url(text: str) -> Url:
    from leveret.perf.plan import Url

    try:
        return Url.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _sizes(text: str) -> Sizes:
    from leveret.perf.plan import Sizes

    if not re.fullmatch(r"[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not such as 100, 100,1000 or 100-2000")
    try:
        return Sizes.read(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} has a range that ends before it begins") from None


def _rates(text: str) -> tuple[tuple[float, float], ...]:
    number = r"[0-9]{1,9}(\.[0-9]{1,6})?"
    if not re.fullmatch(f"{number}|{number}:{number}(,{number}:{number})*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not such as 1000, or 1000:10,5000:2 (rate:seconds)")
    found = tuple(
        (float(rate), float(seconds or 1))
        for rate, _, seconds in (part.partition(":") for part in text.split(","))
    )
    if not sum(rate * seconds for rate, seconds in found):
        raise argparse.ArgumentTypeError(f"{text!r} never sends anything")
    return found


def _whole(text: str) -> int:
    if not re.fullmatch("[0-9]{1,12}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _positive(text: str) -> int:
    if not _whole(text):
        raise argparse.ArgumentTypeError("it is at least 1")
    return _whole(text)


def _pair(text: str) -> tuple[str, str | int | bool]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    if re.fullmatch("-?[0-9]{1,18}", value):
        return key, int(value)
    return key, {"true": True, "false": False}.get(value, value)
