"""`leveret trace on|off|follow`: switch the copying of a virtual host's messages on or off, and print the copies."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from leveret.server.cli.api_commands import Working, say
from leveret.server.cli.command_parser import Add, Environ, control, parts_of, put, virtual_host
from leveret.server.cli.exit_codes import DONE

if TYPE_CHECKING:
    from leveret.server.cli.api import Api, Row

EXAMPLES: Final = """\
While it is on, each message that is published or delivered is copied to the exchange amq.rabbitmq.trace, with the key
publish.EXCHANGE or deliver.QUEUE. The copies cost as much as other messages: switch it off again. `follow` does not
switch it on or off.
"""
EXCHANGE: Final = "amq.rabbitmq.trace"
AT_ONCE: Final = 100  # messages a request
KEPT: Final = {"x-expires": 60_000, "x-max-length": 10_000}  # the queue expires even if we are killed
PAUSE_S: Final = 0.5
DESCRIBING: Final = ("description", "tags")  # RabbitMQ drops those that are not given again


def add_trace(parser: argparse.ArgumentParser, environ: Environ) -> None:
    actions = parts_of(parser)
    for name, work, text in (
        ("on", switch_on, "Begin to copy messages."),
        ("off", switch_off, "Stop copying messages."),
        ("follow", follow, "Print copies as they arrive, until Ctrl-C."),
    ):
        part = put(actions, name, text)
        control(part, environ, Working(work), EXAMPLES)
        virtual_host(part)
        if work is follow:
            part.add_argument(
                "--key", metavar="PATTERN", default="#", help="such as publish.# or deliver.orders"
            )


def switch_on(options: argparse.Namespace, api: Api) -> int:
    return _switched(options, api, True)


def switch_off(options: argparse.Namespace, api: Api) -> int:
    return _switched(options, api, False)


def _switched(options: argparse.Namespace, api: Api, on: bool) -> int:
    from leveret.server.cli.api import path

    host = api.get(path("vhosts", options.vhost))
    kept = {name: host[name] for name in DESCRIBING if name in host} if isinstance(host, Mapping) else {}
    api.put(path("vhosts", options.vhost), {**kept, "tracing": on})
    what = f"messages of vhost '{options.vhost}' are {'' if on else 'not '}copied to {EXCHANGE}"
    say(options, {"vhost": options.vhost, "tracing": on}, what)
    return DONE


def follow(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import path
    from leveret.server.cli.objects import between
    from leveret.server.cli.text import plain

    host = api.get(path("vhosts", options.vhost))
    if isinstance(host, Mapping) and host.get("tracing") is False:
        print(
            f"leveret: vhost '{plain(options.vhost)}' copies no messages yet: `leveret trace on` begins; waiting",
            file=sys.stderr,
        )
    name = f"leveret.trace.{secrets.token_hex(8)}"
    queue = path("queues", options.vhost, name)
    api.put(queue, {"durable": False, "auto_delete": False, "arguments": KEPT})
    try:
        api.post(path(*between(options.vhost, EXCHANGE, "queue", name)), {"routing_key": options.key})
        for message in copies(api, f"{queue}/get"):
            print(json.dumps(message) if options.json else line(message), flush=True)
    finally:
        api.delete(queue)
    return DONE


def copies(api: Api, getting: str) -> Iterator[Row]:
    """Yield copies as they arrive, forever, pausing while there are none."""
    from leveret.server.cli.api import rows_of

    query = {"count": AT_ONCE, "ackmode": "ack_requeue_false", "encoding": "auto"}
    while True:
        messages = rows_of(api.post(getting, query))
        yield from messages
        if len(messages) < AT_ONCE:
            time.sleep(PAUSE_S)


def line(message: Row) -> str:
    """Return a copy as one line: the event and its object, the keys and the user, the payload."""
    from leveret.server.cli.text import plain

    value = message.get("properties")
    headers = value.get("headers") if isinstance(value, Mapping) else None
    told = headers if isinstance(headers, Mapping) else {}
    what = str(message.get("routing_key", ""))
    keys = ",".join(map(str, keys)) if isinstance(keys := told.get("routing_keys"), list) else ""
    payload = str(message.get("payload", ""))
    return plain(
        f"{what}  exchange={told.get('exchange_name', '')}  keys={keys}  user={told.get('user', '')}  {payload}"
    ).replace("\n", "\\n")


ADD: Final[Mapping[str, Add]] = {"trace": add_trace}
