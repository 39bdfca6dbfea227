"""Work with the messages of a queue.

`leveret publish`, `get`, `peek`, `purge`, `move`, `delayed`, `pause`, `resume`, `reread`, `renew`.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.arguments.names import counted
from leveret.server.cli.api_commands import Working, confirmed, confirming, say, table
from leveret.server.cli.command_parser import Add, Environ, control, header, virtual_host
from leveret.server.cli.exit_codes import DONE, REFUSED
from leveret.server.cli.lists import count
from leveret.server.cli.objects import facts

if TYPE_CHECKING:
    from leveret.server.cli.api import Api, Row

PUBLISH_EXAMPLES: Final = """\
examples:
  leveret publish --key orders 'to the queue orders'
  leveret publish --exchange shop --key eu.new --property content_type=application/json --file order.json
  date | leveret publish --exchange log --header host=a1 --persistent

Without PAYLOAD and --file the payload is read from standard input. The exit code is 1 if no queue took the message.
Properties are those of AMQP: content_type, content_encoding, priority, correlation_id, reply_to, expiration,
message_id, timestamp, type, user_id, app_id, delivery_mode.
"""
GET_EXAMPLES: Final = """\
examples:
  leveret get orders                            look at the first message; it goes back, marked as redelivered
  leveret get orders --count 10 --ack-mode ack --json
  leveret get orders --ack-mode ack --raw > body
"""
PEEK_EXAMPLES: Final = """\
examples:
  leveret peek orders --count 10

Nothing is removed: the messages keep their places and are not marked as redelivered.
"""
DELAYED_COLUMNS: Final = ("position", "due", "payload_bytes", "delivery_count", "redelivered")
DELAYED_EXAMPLES: Final = """\
examples:
  leveret delayed orders                        those that are due first
  leveret delayed orders --cancel 17 --cancel 18
  leveret delayed orders --deliver-all          do not wait any longer

These are messages that wait for a time before they are ready: after a delivery that failed, or because they were
published for later.
"""
RENEW_EXAMPLES: Final = """\
examples:
  leveret renew '127.0.0.1:40000 -> 127.0.0.1:5672 (1)'       all that the channel has not acknowledged
  leveret renew '127.0.0.1:40000 -> 127.0.0.1:5672 (1)' 7     the delivery with the tag 7

The time that the queue's or the consumer's timeout allows begins anew. `leveret list channels` shows the names.
"""
ACK_MODES: Final = {
    "requeue": "ack_requeue_true",
    "ack": "ack_requeue_false",
    "reject-requeue": "reject_requeue_true",
    "reject": "reject_requeue_false",
}
NUMBERS: Final = frozenset({"priority", "delivery_mode", "timestamp"})
PROPERTIES: Final = NUMBERS | {
    "content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type", "user_id",
    "app_id",
}  # fmt: skip


def add_publish(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(publish), PUBLISH_EXAMPLES)
    virtual_host(parser)
    parser.add_argument(
        "--exchange", metavar="NAME", default="", help="the exchange (default: the default one)"
    )
    parser.add_argument("--key", default="", help="the routing key")
    for flag, of in (("--header", header), ("--property", known_property)):
        parser.add_argument(
            flag, metavar="NAME=VALUE", action="append", default=[], type=of, help="may be repeated"
        )
    parser.add_argument("--persistent", action="store_true", help="the message outlives the node")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("payload", metavar="PAYLOAD", nargs="?", help="the payload, as UTF-8")
    given.add_argument("--file", metavar="FILE", type=Path, help="a file with the payload")


def add_get(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(get), GET_EXAMPLES)
    _looked_at(parser)
    parser.add_argument(
        "--ack-mode",
        choices=list(ACK_MODES),
        default="requeue",
        help="the fate of the messages (default: requeue)",
    )


def add_peek(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(peek), PEEK_EXAMPLES)
    _looked_at(parser)


def _looked_at(parser: argparse.ArgumentParser) -> None:
    _queue(parser)
    parser.add_argument("--count", metavar="N", type=count, default=1, help="number of messages (default: 1)")
    parser.add_argument("--truncate", metavar="BYTES", type=count, help="the most of each payload to show")
    parser.add_argument("--raw", action="store_true", help="print the payloads only, as they are")


def add_purge(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(purge))
    _queue(parser)
    confirming(parser)


def add_move(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(move))
    _queue(parser)
    parser.add_argument("to", metavar="TO", help="the queue that gets the messages")


def add_delayed(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(delayed), DELAYED_EXAMPLES)
    _queue(parser)
    parser.add_argument("--count", metavar="N", type=count, default=20, help="the most to show (default: 20)")
    change = parser.add_mutually_exclusive_group()
    for verb, words in (("cancel", "drop"), ("deliver", "deliver now")):
        change.add_argument(
            f"--{verb}",
            metavar="POSITION",
            type=position,
            action="append",
            help=f"{words} this one; may be repeated",
        )
        change.add_argument(f"--{verb}-all", action="store_true", help=f"{words} all of them")
    confirming(parser)


def position(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) >= 20:
        raise argparse.ArgumentTypeError(f"{text!r} is not a position; the list shows them")
    return int(text)


def add_pause(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(pause))
    _queue(parser)


def add_resume(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(resume))
    _queue(parser)


def add_reread(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(reread))
    _queue(parser)


def add_renew(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(renew), RENEW_EXAMPLES)
    parser.add_argument("channel", metavar="CHANNEL", help="the channel's, or session's, name")
    parser.add_argument("tag", metavar="TAG", nargs="?", default="all", help="a delivery tag (default: all)")


def _queue(parser: argparse.ArgumentParser) -> None:
    virtual_host(parser)
    parser.add_argument("queue", metavar="QUEUE")


def known_property(text: str) -> str:
    name = header(text).partition("=")[0]
    if name not in PROPERTIES:
        raise argparse.ArgumentTypeError(f"no property {name!r}; known are {', '.join(sorted(PROPERTIES))}")
    return text


def publish(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import path

    exchange = options.exchange or "amq.default"
    answer = api.post(path("exchanges", options.vhost, exchange, "publish"), message(options))
    routed = isinstance(answer, Mapping) and bool(answer.get("routed"))
    where = f"exchange '{options.exchange}'" if options.exchange else "the default exchange"
    dropped = f"dropped: {where} leads nowhere with the key '{options.key}'; `leveret explain` tells why"
    say(options, answer, "published" if routed else dropped)
    return DONE if routed else REFUSED


def message(options: argparse.Namespace) -> dict[str, object]:
    """Return the message as JSON for the API. Raises OSError or ValueError if the payload or a property is unusable."""
    properties: dict[str, object] = dict(each.split("=", 1) for each in options.property)
    properties |= {name: _number(name, properties[name]) for name in NUMBERS & properties.keys()}
    if options.header:
        properties["headers"] = table(options.header)
    if options.persistent:
        properties["delivery_mode"] = 2
    text, encoding = payload(options)
    return {
        "routing_key": options.key,
        "properties": properties,
        "payload": text,
        "payload_encoding": encoding,
    }


def _number(name: str, text: object) -> int:
    if not str(text).isdecimal():
        raise ValueError(f"the property {name} is a whole number, not {text!r}")
    return int(str(text))


def payload(options: argparse.Namespace) -> tuple[str, str]:
    """Return the payload and its encoding: as text if it is UTF-8, else as Base64."""
    if options.payload is not None:
        content = options.payload.encode("utf-8", "surrogateescape")
    else:
        content = sys.stdin.buffer.read() if options.file is None else options.file.read_bytes()
    try:
        return content.decode(), "string"
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), "base64"


def get(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import path, rows_of

    query = {"count": options.count, "ackmode": ACK_MODES[options.ack_mode], "encoding": "auto"}
    if options.truncate:
        query["truncate"] = options.truncate
    return show(options, rows_of(api.post(path("queues", options.vhost, options.queue, "get"), query)))


def peek(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import own_path, rows_of

    query = {"count": str(options.count)}
    if options.truncate:
        query["truncate"] = str(options.truncate)
    return show(options, rows_of(api.get(own_path("queues", options.vhost, options.queue, "peek"), query)))


def show(options: argparse.Namespace, messages: list[Row]) -> int:
    """Print messages in the form that the options ask for."""
    if options.raw:
        for each in messages:
            sys.stdout.buffer.write(body(each))
        sys.stdout.buffer.flush()
    elif options.json:
        print(json.dumps(messages, indent=2))
    else:
        print("\n\n".join(map(described, messages)) or "no message")
    return DONE


def body(message: Row) -> bytes:
    """Return the payload of a message from the API. Raises ValueError if it is not Base64."""
    text = str(message.get("payload", ""))
    return base64.b64decode(text) if message.get("payload_encoding") == "base64" else text.encode()


def described(message: Row) -> str:
    """Return a message as text for people: its origin, its properties, its payload."""
    from leveret.server.cli.text import plain, told

    head = {
        name: value
        for name, value in message.items()
        if name not in ("payload", "payload_encoding", "properties") and value is not None
    }
    properties = message.get("properties")
    if isinstance(properties, Mapping) and properties:
        head["properties"] = properties
    encoded = " (Base64)" if message.get("payload_encoding") == "base64" else ""
    text = plain(str(message.get("payload", "")))
    return f"{told('', head)}\npayload{encoded}\n" + "\n".join(f"  {line}" for line in text.splitlines())


def purge(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import path

    row = facts(api, "queues", options.vhost, options.queue)
    ready, held = row.get("messages_ready"), row.get("messages_unacknowledged")
    what = counted(ready, "message") if isinstance(ready, int) else "the messages"
    kept = f"; {counted(held, 'message')} that consumers hold stay" if isinstance(held, int) and held else ""
    where = f"queue '{options.queue}' in vhost '{options.vhost}'"
    if not confirmed(options, f"This drops {what} of {where}{kept}.", "Go on?"):
        return REFUSED
    api.delete(path("queues", options.vhost, options.queue, "contents"))
    told = {"purged": options.queue, **({} if ready is None else {"messages": ready})}
    say(options, told, f"dropped {what} of {where}{kept}")
    return DONE


def move(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import WORK_TIMEOUT_S, own_path

    target = own_path("queues", options.vhost, options.queue, "move")
    answer = api.post(target, {"to": options.to}, WORK_TIMEOUT_S)
    moved = answer.get("moved") if isinstance(answer, Mapping) else None
    what = counted(moved, "message") if isinstance(moved, int) else "the messages"
    say(options, answer, f"{what} of queue '{options.queue}' moved to queue '{options.to}'")
    return DONE


def delayed(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli import text
    from leveret.server.cli.api import own_path

    below = own_path("queues", options.vhost, options.queue, "delayed")
    if options.cancel is not None or options.cancel_all:
        fact = (
            f"This drops messages of queue '{options.queue}' in vhost '{options.vhost}' that wait for a time."
        )
        if not confirmed(options, fact, "Go on?"):
            return REFUSED
        dropped = 0
        for each in [""] if options.cancel_all else [f"/{each}" for each in dict.fromkeys(options.cancel)]:
            found = api.delete(below + each)
            dropped += int(str(found.get("dropped", 0))) if isinstance(found, dict) else 0
        say(options, {"dropped": dropped}, f"{counted(dropped, 'message')} dropped")
        return DONE
    if options.deliver is not None or options.deliver_all:
        found = api.post(f"{below}/deliver", {} if options.deliver_all else {"positions": options.deliver})
        delivered = int(str(found.get("delivered", 0))) if isinstance(found, dict) else 0
        say(options, {"delivered": delivered}, f"{counted(delivered, 'message')} made ready")
        return DONE
    found = api.get(f"{below}?count={min(options.count, 1000)}")
    assert isinstance(found, dict), "the node answers with an object"
    rows = found.get("messages")
    shown = [each for each in rows if isinstance(each, dict)] if isinstance(rows, list) else []
    if options.json:
        print(json.dumps(found, indent=2))
    elif not shown:
        print(f"no message of '{options.queue}' waits for a time")
    else:
        print(text.table([{**each, "due": when(each.get("due"))} for each in shown], DELAYED_COLUMNS))
        print(f"{len(shown)} of {found.get('total')}")
    return DONE


def when(ms: object) -> str:
    """Return a time in ms since 1970 for people, in UTC."""
    if not isinstance(ms, int):
        return ""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")


def pause(options: argparse.Namespace, api: Api) -> int:
    return _paused(options, api, "pause", "is paused: its consumers get nothing until `leveret resume`")


def resume(options: argparse.Namespace, api: Api) -> int:
    return _paused(options, api, "resume", "delivers to its consumers")


def _paused(options: argparse.Namespace, api: Api, verb: str, words: str) -> int:
    from leveret.server.cli.api import path

    api.put(path("queues", options.vhost, options.queue, verb), {})
    told = {
        "name": options.queue,
        "vhost": options.vhost,
        "state": "paused" if verb == "pause" else "running",
    }
    say(options, told, f"queue '{options.queue}' {words}")
    return DONE


def reread(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import path

    answer = api.put(path("queues", options.vhost, options.queue, "reread"), {})
    count = answer.get("rereading") if isinstance(answer, Mapping) else None
    told = {"name": options.queue, "vhost": options.vhost, "rereading": count}
    what = counted(count, "message") if isinstance(count, int) and count else "nothing"
    say(
        options,
        told,
        f"{what} of queue '{options.queue}' is read again; `leveret list queues` shows what is left",
    )
    return DONE


def renew(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import own_path

    answer = api.put(own_path("channels", options.channel, "deliveries", options.tag, "renew"), {})
    renewed = answer.get("renewed") if isinstance(answer, Mapping) else None
    say(options, answer, f"renewed: {renewed} of channel '{options.channel}'")
    return DONE


ADD: Final[Mapping[str, Add]] = {
    "publish": add_publish,
    "get": add_get,
    "peek": add_peek,
    "purge": add_purge,
    "move": add_move,
    "delayed": add_delayed,
    "pause": add_pause,
    "resume": add_resume,
    "reread": add_reread,
    "renew": add_renew,
}
