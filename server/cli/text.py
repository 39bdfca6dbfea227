"""Answers of a node as text for people: tables, trees, summaries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from leveret.config.config import Config
    from leveret.config.listener import ListenerEntry
    from leveret.config.types import Problem

Object: TypeAlias = Mapping[str, object]


def summary(config: Config) -> str:
    """Return the essentials of a configuration, in a few lines."""
    return "\n".join(_columns([(name, ", ".join(items)) for name, items in _summary(config)], indent="  "))


def summary_json(config: Config, warnings: Sequence[str] = ()) -> str:
    told = {name: list(items) for name, items in _summary(config)}
    more = {"warnings": list(warnings)} if warnings else {}
    return json.dumps({"ok": True, **told, **more}, indent=2)


def problems_json(problems: Iterable[Problem], warnings: Sequence[str] = ()) -> str:
    listed = [
        {
            name: text
            for name in ("where", "origin", "found", "accepted", "hint")
            if (text := getattr(each, name))
        }
        for each in problems
    ]
    more = {"warnings": list(warnings)} if warnings else {}
    return json.dumps({"ok": False, "problems": listed, **more}, indent=2)


def _summary(config: Config) -> Iterator[tuple[str, Sequence[str]]]:
    from leveret.config.types import printed

    yield "listeners", [_listener(entry) for entry in config.listeners]
    yield "control", [_control(config)]
    yield "data", [_data(config)]
    yield "virtual hosts", [entry.name for entry in config.virtual_hosts]
    yield "users", [*(entry.name for entry in config.users), *_users_of_definitions(config)]
    yield "policies", [entry.name for entry in config.policies] or ["none"]
    yield "definitions", [str(path) for path in config.definitions.load] or ["none"]
    yield "plug-in folders", [str(path) for path in config.plugins.folders] or ["none"]
    yield "memory alarm", [_watermark(config)]
    yield (
        "compatibility",
        [config.compat.profile, *(f"{row} = {printed(value)}" for row, value in config.compat.rows.items())],
    )


def _users_of_definitions(config: Config) -> list[str]:
    from leveret.config.config import Config

    if not config.definitions.load:
        return []
    is_default = config.users == Config().users
    return ["unless the definitions have users" if is_default else "and those of the definitions"]


def _control(config: Config) -> str:
    if not config.http.enabled:
        return "switched off"
    scheme = "http" if config.http.tls is None else "https"
    address = f"{scheme}://{config.http.address}" if config.http.address.host else str(config.http.address)
    return f"{address} (with AMQP over WebSockets)" if config.http.websocket else address


def _data(config: Config) -> str:
    folder = config.node.data_dir
    if config.store.engine == "postgres":
        from leveret.durable.store.postgres.session import Database

        settings = config.store.postgres
        return f"in PostgreSQL: {Database(settings.dsn or '', settings.schema)}"
    return "in memory, gone when the node stops" if folder is None else f"{folder} (durable)"


def _listener(entry: ListenerEntry) -> str:
    more = [", ".join(entry.protocols)] if entry.protocols else []
    if entry.tls is not None:
        more.append("with TLS" if entry.tls.required else "with TLS or without it")
    more += ["over WebSockets"] * entry.websocket + ["behind proxies"] * entry.proxy_protocol
    return f"{entry.address} ({'; '.join(more)})" if more else str(entry.address)


def _watermark(config: Config) -> str:
    from leveret.config.types import size_text

    mark = config.memory_watermark
    if not mark:
        return "off"
    return f"above {mark:g} of the memory" if isinstance(mark, float) else f"above {size_text(mark)}"


def told(path: str, content: object) -> str:
    """Return the node's answer to a request, as text."""
    if path.startswith("/api/leveret/explain") and isinstance(content, Mapping):
        return plain(explained(content))
    if path.startswith("/api/leveret/streams/") and isinstance(content, list):
        return "\n".join(_table(content, "")) if content else "no streams"
    if path.startswith("/api/leveret/leases/") and isinstance(content, list):
        return "\n".join(_table(content, "")) if content else "no leases"
    if path.startswith("/api/leveret/branches/") and isinstance(content, list):
        return "\n".join(_table(content, "")) if content else "no branches"
    if path == "/api/leveret/kept" and isinstance(content, list):
        return "\n".join(_table(list(_lists(content)), "")) if content else "nothing"
    if path.startswith("/api/leveret/kept/") and isinstance(content, list):
        return "\n".join(_table(content, "")) if content else "nothing"
    return "\n".join(_lines(content)) or "done"


def _lists(content: Sequence[object]) -> Iterator[Object]:
    """Yield the lists of what protocols keep, without the columns of their pages."""
    for each in content:
        if isinstance(each, Mapping):
            yield {name: each.get(name) for name in ("protocol", "list", "title")}


def _lines(content: object, indent: str = "") -> Iterator[str]:
    """Yield the lines of any JSON: single values aligned, lists of objects as tables, objects indented."""
    if not isinstance(content, Mapping):
        yield from (
            f"{indent}{_cell(item)}" for item in (content if isinstance(content, list) else [content])
        )
        return
    single = {name: value for name, value in content.items() if not _nested(value)}
    yield from _columns([_entry(name, value) for name, value in single.items()], indent)
    for name, value in content.items():
        if not _nested(value):
            continue
        yield f"{indent}{_label(name)}"
        if isinstance(value, list):
            yield from _table(value, f"{indent}  ")
        else:
            yield from _lines(value, f"{indent}  ")


def _entry(name: str, value: object) -> tuple[str, str]:
    """Return a name and its value; seconds become a time for people."""
    if name.endswith("_s") and isinstance(value, int | float):
        return _label(name.removesuffix("_s")), duration(value)
    return _label(name), _cell(value)


def _nested(value: object) -> bool:
    return bool(value) and (
        isinstance(value, Mapping)
        or (isinstance(value, list) and any(isinstance(item, Mapping) for item in value))
    )


def duration(seconds: float) -> str:
    """Return a time for people, in its two largest units: `3 d 4 h`, `13 min 34 s`, `4.5 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    left = round(seconds)
    units = [("d", left // 86_400), ("h", left // 3600 % 24), ("min", left // 60 % 60), ("s", left % 60)]
    first = next(at for at, (_, count) in enumerate(units) if count)
    return " ".join(f"{count} {unit}" for unit, count in units[first : first + 2] if count)


def width(text: str) -> int:
    """Return how many columns of a terminal a text takes: East Asian letters take two, and marks on letters none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def padded(text: str, room: int) -> str:
    """Return a text with spaces behind it, up to this many columns."""
    return text + " " * (room - width(text))


def fitted(text: str, room: int) -> str:
    """Return a text cut to this many columns; one that is too long ends in an ellipsis."""
    if width(text) <= room:
        return text
    kept, taken = "", 0
    for each in text:
        taken += width(each)
        if taken >= room:
            break
        kept += each
    return kept + "…"


def table(rows: Sequence[Object], columns: Sequence[str]) -> str:
    """Return rows under the names of their columns."""
    cells = [tuple(_cell(row.get(column)) for column in columns) for row in rows]
    return "\n".join(_columns([tuple(columns), *cells]))


def _table(rows: Sequence[object], indent: str) -> Iterator[str]:
    objects = [row for row in rows if isinstance(row, Mapping)]
    names = list(dict.fromkeys(str(name) for row in objects for name in row))
    cells = [tuple(_cell(row.get(name)) for name in names) for row in objects]
    yield from _columns([tuple(_label(name) for name in names), *cells], indent)


def _columns(rows: Sequence[Sequence[str]], indent: str = "") -> Iterator[str]:
    """Yield rows with their columns aligned; a cell of several lines continues below, in its column."""
    if not rows:
        return
    widths = [
        max((width(line) for cell in column for line in cell.splitlines()), default=0)
        for column in zip(*rows, strict=True)
    ]
    for row in rows:
        cells = [cell.splitlines() or [""] for cell in row]
        for line in range(max(map(len, cells))):
            parts = (cell[line] if line < len(cell) else "" for cell in cells)
            yield (
                indent + "  ".join(padded(part, room) for part, room in zip(parts, widths, strict=True))
            ).rstrip()


def _label(name: object) -> str:
    return str(name).replace("octets", "bytes").replace("_", " ")


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_cell, value)) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_cell(item)}" for name, item in value.items()) or "none"
    return "-" if value is None else plain(str(value))


def plain(text: str) -> str:
    """Escape control characters other than newlines: names are arbitrary, and must not move the cursor."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode()
        for each in text
    )


def explained(content: Object) -> str:
    """Return the answer of `explain`: the outcome, then each exchange tried, indented by its distance."""
    return "\n".join(
        [_outcome(content), "", *_tree(_objects(content.get("steps"))), *_permission(content)]
    ).rstrip()


def _outcome(content: Object) -> str:
    queues, paused = content.get("queues"), content.get("paused")
    waiting = set(map(str, paused)) if isinstance(paused, list) else set()
    told = [str(name) for name in queues] if isinstance(queues, list) else []
    names = [f"{name} (paused)" if name in waiting else name for name in told]
    if names:
        return f"routed to {len(names)} queue{'s' if len(names) > 1 else ''}: {', '.join(names)}"
    if content.get("routed"):
        return "taken by the exchange itself"
    return f"dropped: {content.get('dropped') or 'no queue is bound'}"


def _tree(steps: Sequence[Object]) -> Iterator[str]:
    """Yield the exchanges asked, each below the one whose binding or alternate led to it."""
    for step in steps:
        if step.get("source") is None:
            yield from _branch(step, steps, "")


def _branch(step: Object, steps: Sequence[Object], indent: str) -> Iterator[str]:
    """Yield one exchange, and below each binding to an exchange what that leads to."""
    via = str(step.get("via", ""))
    below = [each for each in steps if each.get("source") == step.get("exchange")]
    yield f"{indent}{_exchange(step.get('exchange'))} ({step.get('type')}), {VIA.get(via, via)}"
    for matched in _objects(step.get("matched")):
        yield f"{indent}  {_match(matched)}"
        if matched.get("kind") == "exchange" and matched.get("followed"):
            for each in below:
                if each.get("exchange") == matched.get("name"):
                    yield from _branch(each, steps, f"{indent}    ")
    for unmet in _objects(step.get("unmet")):
        yield f"{indent}  {_match(unmet)}: the selector does not match"
    if step.get("reason"):
        yield f"{indent}  {step['reason']}"
    for each in below:
        if each.get("via") == "alternate":
            yield from _branch(each, steps, f"{indent}    ")


VIA = {"publish": "published to", "binding": "reached by a binding", "alternate": "tried as the alternate"}


def _exchange(name: object) -> str:
    return f"exchange '{name}'" if name else "the default exchange"


def _match(matched: Object) -> str:
    key, arguments = matched.get("key"), matched.get("arguments")
    parts = [f"'{key}'"] if key is not None else []  # None: the exchange type does not name the binding
    parts += [_cell(arguments)] if arguments else []
    parts.append(f"-> {matched.get('kind')} '{matched.get('name')}'")
    return " ".join(parts) + ("" if matched.get("followed") else ", asked before")


def _permission(content: Object) -> Iterator[str]:
    permission = content.get("permission")
    if not isinstance(permission, Mapping):
        return
    yield ""
    if permission.get("allowed") is None:
        yield "permissions: not checked; --as-user NAME checks them"
    elif permission["allowed"]:
        yield f"permissions: user '{permission.get('user')}' may publish it"
    else:
        yield "permissions: refused; above is what would happen otherwise"


def _objects(value: object) -> list[Object]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
