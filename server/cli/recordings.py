"""`leveret record`: begin and end recordings, and look into one; `leveret replay-session`: play one.

leveret record start --vhost /            the node writes a file, and says where
leveret record show FILE                  what happened, one line each
leveret replay-session FILE               into a broker in this process; --to URL: into a running node
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from leveret.server.cli.api_commands import asking_part, say, words_of
from leveret.server.cli.command_parser import (
    CONTROL_EXAMPLES,
    Add,
    Command,
    Environ,
    parts_of,
    put,
    virtual_host,
)
from leveret.server.cli.exit_codes import DONE, REFUSED, UNREACHABLE, failed
from leveret.server.cli.text import plain

if TYPE_CHECKING:
    from leveret.durable.store.origin import EncodingOf
    from leveret.features.recording.player import Player
    from leveret.features.recording.records import SessionRecord
    from leveret.server.cli.api import Api
    from leveret.server.cli.control_client import Answer, ControlClient
    from leveret.server.plugin_loader import Plugins

RECORD_EXAMPLES: Final = """\
examples:
  leveret record start --vhost / --redact-bodies
  leveret record stop --vhost /
  leveret record show /var/lib/leveret/recordings/FILE
  leveret record stats FILE --json

The file is on the machine of the node, and only the node's user can read it.
"""
REPLAY_EXAMPLES: Final = """\
examples:
  leveret replay-session FILE                       as fast as it goes, into a broker in this process
  leveret replay-session FILE --seed 7              route anew; what draws by chance draws from the seed
  leveret replay-session FILE --to http://127.0.0.1:15672 --vhost yesterday --speed 10

Exit codes: 0 topology and queues are as the recording says at its end; 1 they are not, or the recording has no end.
With --to, the virtual host must not exist yet.
"""
SPEED_MAX: Final = "max"
SEND_TIMEOUT_S: Final = 600.0


def add_record(parser: argparse.ArgumentParser, environ: Environ) -> None:
    actions = parts_of(parser)
    parser.epilog = RECORD_EXAMPLES
    starting = asking_part(
        actions, environ, "start", start, "Record a virtual host from now on.", RECORD_EXAMPLES
    )
    stopping = asking_part(actions, environ, "stop", stop, "End the recording of a virtual host.")
    asking_part(actions, environ, "status", status, "List the recordings that are under way.")
    for part in (starting, stopping):
        virtual_host(part)
    starting.add_argument(
        "--max-bytes", metavar="N", type=int, help="on disk at most (default: record.max_bytes)"
    )
    starting.add_argument(
        "--when-full",
        choices=["rotate", "stop"],
        help="go on in a new file, or end (default: record.when_full)",
    )
    starting.add_argument("--redact-bodies", action="store_true", help="write zeros in place of bodies")
    for what in ("headers", "properties"):
        starting.add_argument(
            f"--redact-{what}",
            metavar="PATTERN",
            action="append",
            default=[],
            help="such as *secret*; may be repeated",
        )
    _reading_part(
        actions, "show", show, "Show what is in a recording, one line for each record."
    ).add_argument("--at", metavar="TIME", help="up to this moment: ISO 8601, or +SECONDS from the start")
    _reading_part(actions, "stats", stats, "Count what is in a recording.")


def _reading_part(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, command: Command, text: str
) -> argparse.ArgumentParser:
    part = put(actions, name, text)
    part.set_defaults(command=command)
    part.add_argument("file", metavar="FILE", type=Path)
    part.add_argument("--json", action="store_true", help="print JSON")
    return part


def add_replay(parser: argparse.ArgumentParser, environ: Environ) -> None:
    parser.set_defaults(command=replay)
    parser.epilog = f"{REPLAY_EXAMPLES}\n{CONTROL_EXAMPLES}"
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--seed", metavar="N", type=int, help="route messages anew, by chance from this seed")
    parser.add_argument(
        "--speed",
        metavar="X",
        type=_speed,
        default=0.0,
        help="times the speed of what was recorded, or max (default)",
    )
    parser.add_argument("--to", metavar="URL", help="the control endpoint of a node, also unix:/PATH")
    parser.add_argument(
        "--vhost", metavar="NAME", help="the new virtual host on that node (default: that of the recording)"
    )
    parser.add_argument("--user", default=environ.get("LEVERET_USER") or "guest", help="the login")
    parser.add_argument("--password-file", metavar="FILE", type=Path, help="a file with the password")
    parser.add_argument(
        "--plugins",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="a folder of plug-ins; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _speed(text: str) -> float:
    """Return how many times faster; 0: as fast as it goes."""
    if text == SPEED_MAX:
        return 0.0
    speed = float(text)
    if not 0 < speed < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a positive number nor {SPEED_MAX}")
    return speed


# Of a running node.


def start(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import own_path

    query: dict[str, object] = {
        "redact_bodies": options.redact_bodies,
        "redact_headers": options.redact_headers,
        "redact_properties": options.redact_properties,
    }
    if options.max_bytes is not None:
        query["max_bytes"] = options.max_bytes
    if options.when_full is not None:
        query["when_full"] = options.when_full
    told = api.put(own_path("recordings", options.vhost), query)
    file = told.get("file") if isinstance(told, Mapping) else ""
    say(options, told, plain(f"vhost '{options.vhost}' is recorded to {file}"))
    return DONE


def stop(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import own_path

    told = api.delete(own_path("recordings", options.vhost))
    say(options, told, plain(f"vhost '{options.vhost}' is not recorded any more"))
    return DONE


def status(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import own_path, rows_of

    rows = rows_of(api.get(own_path("recordings")))
    lines = [
        plain(
            f"{row['vhost']}: {row['file']}, {row['bytes']} bytes, {row['records']} records, {row['gaps']} gaps"
        )
        for row in rows
    ]
    say(options, rows, "\n".join(lines) or "nothing is recorded")
    return DONE


# Of a file.


def show(options: argparse.Namespace, environ: Environ) -> int:
    try:
        encoding_of = _encoding_of(_plugins([]))
        for record in _records(options.file, options.at):
            told = json_of(record, encoding_of)
            print(json.dumps(told) if options.json else plain(line(told)), flush=True)
    except (OSError, ValueError) as error:
        return failed(words_of(error))
    return DONE


def json_of(record: SessionRecord, encoding_of: EncodingOf) -> dict[str, object]:
    """Return a record as JSON for people: a message with its address, and its body where that is text."""
    told: dict[str, object] = {
        "time": time_text(record.at),
        "kind": record.kind.name.lower(),
        **record.fields,
    }
    if record.raw:
        told["message"] = message_json(record.raw, encoding_of)
    return told


def message_json(raw: bytes, encoding_of: EncodingOf) -> dict[str, object]:
    from leveret.features.recording.redaction import read
    from leveret.values import as_json

    message = read(raw, encoding_of)
    try:
        properties = attrs.asdict(message.encoding.read(message.properties), recurse=False)
        body = message.encoding.octets(message.body)
    except Exception:  # the encoding may raise anything
        properties, body = {}, message.body
    text = body.decode("utf-8", "replace")
    return {
        "exchange": message.exchange,
        "key": message.key,
        "protocol": message.encoding.name,
        "properties": {name: as_json(value) for name, value in properties.items() if value},
        "bytes": len(body),
        "body": text if text.isprintable() else None,
    }


def line(told: Mapping[str, object]) -> str:
    """Return a record as one line: time, kind, and its facts."""
    facts = {name: value for name, value in told.items() if name not in ("time", "kind")}
    text = "  ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in facts.items()
    )
    return f"{told['time']}  {told['kind']:<9}  {text}".replace("\n", "\\n")


def stats(options: argparse.Namespace, environ: Environ) -> int:
    """Count records by kind, messages by queue, and tell the span and what is torn."""
    from leveret.features.recording.records import RecordKind, RecordReader

    kinds: Counter[str] = Counter()
    entered: Counter[str] = Counter()
    times: list[int] = []
    octets = 0
    reading = RecordReader()
    try:
        with options.file.open("rb") as file:
            for record in reading.records(file):
                kinds[record.kind.name.lower()] += 1
                octets += len(record.raw)
                times = [times[0] if times else record.at, record.at]
                if record.kind is RecordKind.ENTERED:
                    entered[str(record.fields.get("queue"))] += 1
    except (OSError, ValueError) as error:
        return failed(words_of(error))
    told = {
        "from": time_text(times[0]) if times else None,
        "to": time_text(times[-1]) if times else None,
        "blocks": reading.blocks,
        "bytes": reading.octets,
        "torn_bytes": reading.torn,
        "message_bytes": octets,
        "records": dict(kinds),
        "entered": dict(entered.most_common()),
    }
    lines = [f"{name}: {value}" for name, value in told.items() if not isinstance(value, dict)]
    lines += [f"  {count:>9} {name}" for name, count in kinds.most_common()]
    lines += [f"  {count:>9} into queue '{name}'" for name, count in entered.most_common()]
    print(json.dumps(told) if options.json else plain("\n".join(lines)))
    return DONE


def time_text(at: int) -> str:
    """Return microseconds since 1970 as ISO 8601."""
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def moment(text: str, begin_at: int) -> int:
    """Return a time that a person wrote, in microseconds since 1970. Raises ValueError."""
    if text.startswith("+"):
        return begin_at + round(float(text) * 1e6)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"'{text}' is neither a time such as 2026-11-27T09:30:00Z, nor +SECONDS") from None
    return round(found.timestamp() * 1e6)  # without a zone it is the local one


def _records(path: Path, at: str | None = None) -> Iterator[SessionRecord]:
    """Yield the records of a file up to a moment. Raises Damaged, OSError, ValueError."""
    from leveret.features.recording.records import RecordReader

    until: int | None = None
    reading = RecordReader()
    with path.open("rb") as file:
        for record in reading.records(file):
            if at is not None and until is None:
                until = moment(at, record.at)
                if until < record.at:
                    raise ValueError(f"the recording begins at {time_text(record.at)}, after that moment")
            if until is not None and record.at > until:
                return
            yield record
    if reading.torn:
        print(f"leveret: the last {reading.torn} bytes of {path} are torn, and left out", file=sys.stderr)


# Replay.


def replay(options: argparse.Namespace, environ: Environ) -> int:
    try:
        if options.to is not None:
            return _replay_to(options, environ)
        return _replay_here(options)
    except (OSError, ValueError) as error:
        return failed(words_of(error))


def _replay_here(options: argparse.Namespace) -> int:
    player, began = _player(options.plugins, options.seed), time.monotonic()
    begin_at = 0
    for record in _records(options.file):
        begin_at = begin_at or record.at
        _keep_pace(options.speed, began, record.at - begin_at)
        player.play(record)
    report = {**player.compare().to_json(), "fingerprint": player.fingerprint()}
    return _told(options, report, time.monotonic() - began)


def _player(folders: list[Path], seed: int | None, contents: bool = True) -> Player:
    """Return a player into a broker of our own, with all plug-ins that are installed. Raises ValueError."""
    from leveret.features.recording.player import fresh_player

    plugins = _plugins(folders)
    return fresh_player("/", plugins.exchange_types, _encoding_of(plugins), seed, contents)


def _plugins(folders: list[Path]) -> Plugins:
    from leveret.server.plugin_loader import BadPlugin, Plugins

    plugins = Plugins(folders)
    try:
        plugins.load()
    except BadPlugin as error:
        raise ValueError(error.told()) from None
    return plugins


def _encoding_of(plugins: Plugins) -> EncodingOf:
    from leveret.front_end import encodings_of

    made = {name: make() for name, make in encodings_of(plugins.protocols.values()).items()}
    return made.get


def _keep_pace(speed: float, began: float, since_us: int) -> None:
    if speed:
        ahead_s = since_us / 1e6 / speed - (time.monotonic() - began)
        if ahead_s > 0:
            time.sleep(ahead_s)


def _replay_to(options: argparse.Namespace, environ: Environ) -> int:
    """Send a recording to a node, block by block."""
    from leveret.server.cli.control_client import Unreachable
    from leveret.server.cli.queries import client

    if options.seed is not None:
        raise ValueError(
            "--seed is for a broker in this process: the exchanges of a running node draw by themselves"
        )
    options.url = options.to
    try:
        with client(options, environ) as node:
            return _sent(options, node)
    except Unreachable as error:
        return failed(str(error), UNREACHABLE)


def _sent(options: argparse.Namespace, client: ControlClient) -> int:
    from leveret.features.recording.records import MAGIC, RecordReader, block, unpacked
    from leveret.server.cli.api import own_path

    began, begin_at, path = time.monotonic(), 0, ""
    with options.file.open("rb") as file:
        for payload in RecordReader().payloads(file):
            first = next(unpacked(payload))
            if not path:
                begin_at = first.at
                path = own_path("replays", options.vhost or str(first.fields.get("vhost")))
                _must(client.ask("PUT", path))
            _keep_pace(options.speed, began, first.at - begin_at)
            _must(client.ask("POST", path, SEND_TIMEOUT_S, MAGIC + block(payload)))
    if not path:
        raise ValueError(f"{options.file} holds no records")
    answer = client.ask("DELETE", path, SEND_TIMEOUT_S)
    _must(answer)
    content = answer.content if isinstance(answer.content, Mapping) else {}
    return _told(options, dict(content), time.monotonic() - began)


def _must(answer: Answer) -> None:
    if answer.refused:
        raise ValueError(answer.reason)


def _told(options: argparse.Namespace, report: Mapping[str, object], took_s: float) -> int:
    """Print what came of a replay, and return the exit code."""
    same = bool(report.get("same"))
    if options.json:
        print(json.dumps({**report, "took_s": round(took_s, 3)}))
        return DONE if same else REFUSED
    print(
        f"played {report['records']} records in {took_s:.2f} s: {report['published']} published, "
        f"{report['delivered']} delivered, {report['settled']} settled"
    )
    for name, text in (
        ("gaps", "gaps, after which everything is described anew"),
        ("rerouted", "messages go elsewhere now than when they were recorded"),
    ):
        if report.get(name):
            print(f"{report[name]} {text}")
    for name, text in (("refused", "could not be played"), ("differences", "differs")):
        for each in _texts(report.get(name)):
            print(plain(f"{text}: {each}"), file=sys.stderr)
    if report.get("fingerprint"):
        print(f"fingerprint of the queues: {report['fingerprint']}")
    if not report.get("ended"):
        return failed(
            "the recording was not stopped in good order, or its end is torn: there is nothing to compare with"
        )
    if not same:
        return failed("topology or queues are not as the recording says at its end")
    print("topology and queues are as the recording says at its end")
    return DONE


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


# Explanation.


def explain_then(options: argparse.Namespace) -> int:
    """Explain where a message would have gone at a moment of a recording."""
    from leveret.config.types import free_value
    from leveret.errors import Failure
    from leveret.exchanges.explain import explain
    from leveret.server.cli.text import explained

    if options.as_user:
        return failed("a recording has no users: --as-user needs a node")
    headers = {}
    for pair in options.header:
        name, _, written = pair.partition("=")
        headers[name] = free_value(written)
    try:
        player = _player([], None, contents=False)
        for record in _records(options.recording, options.at):
            player.play(record)
        told = explain(player.host, options.exchange, options.key, headers).to_json()
    except (OSError, ValueError, Failure) as error:
        return failed(words_of(error))
    for each in player.report.refused:
        print(plain(f"leveret: could not be rebuilt: {each}"), file=sys.stderr)
    content: Mapping[str, object] = json.loads(json.dumps(told))
    print(json.dumps(told) if options.json else plain(explained(content)))
    return DONE


ADD: Final[Mapping[str, Add]] = {"record": add_record, "replay-session": add_replay}
