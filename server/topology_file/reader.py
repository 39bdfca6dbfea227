"""Reads files as topologies: our own in TOML, and RabbitMQ's definitions in JSON.

Both raise ConfigError with every problem. Definitions may come from many versions, so unknown keys are ignored; in our
own file an unknown key is a mistake.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from leveret.arguments.definitions import DEFINITIONS
from leveret.arguments.row import Effect
from leveret.arguments.warnings import component_warnings, without_effect
from leveret.catalogue import COMPONENTS
from leveret.config.config import ConfigError
from leveret.config.records import RecordOf
from leveret.config.types import REFUSED, Place, Problem
from leveret.server.topology_file.model import (
    DEFAULT_TYPE,
    EXCHANGE,
    OPERATOR_POLICY,
    PERMISSION,
    POLICY,
    USER,
    Settings,
    Thing,
    Topology,
    binding,
    queue,
    topology,
    typed,
    virtual_host,
)
from leveret.server.topology_file.records import (
    BindingEntry,
    HostEntry,
    PermissionRecord,
    PolicyRecord,
    TopologyEntry,
)

Row: TypeAlias = Mapping[str, object]

OPERATOR: Final = "operator_policy"  # the component of the parameters that are operator policies


def read_file(path: Path) -> Topology:
    """Read a file as TOML if its name ends in `.toml`, else as JSON. Raises ConfigError or OSError."""
    octets = path.read_bytes()
    try:
        return from_toml(octets) if path.suffix == ".toml" else from_json(octets)
    except ConfigError as error:
        raise ConfigError([_in_file(path, each) for each in error.problems]) from None


def _in_file(path: Path, problem: Problem) -> Problem:
    return attrs.evolve(problem, where=f"{path}: {problem.where}")


def from_toml(octets: bytes) -> Topology:
    try:
        table = tomllib.loads(octets.decode("utf-8-sig"))  # some editors begin files with a byte order mark
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError([Problem("the file", f"a mistake: {error}", "TOML")]) from None
    place = Place([])
    entry = RecordOf(TopologyEntry).read(table, place)
    if entry is REFUSED or place.problems:
        raise ConfigError(place.problems)
    managed = {name: host.manage for name, host in entry.virtual_hosts.items() if host.manage is not None}
    return topology(_things(entry), managed)


def _things(entry: TopologyEntry) -> Iterator[Thing]:
    for name, user in entry.users.items():
        yield Thing((USER, name), {"tags": sorted(user.tags)}, f"users.{name}")
    for name, host in entry.virtual_hosts.items():
        yield virtual_host(name, host.default_queue_type, f'virtual_hosts."{name}"')
        for thing in _in_host(name, host):
            yield typed(thing, host.default_queue_type)


def _in_host(host: str, entry: HostEntry) -> Iterator[Thing]:
    def at(section: str, name: str) -> str:
        return f'virtual_hosts."{host}".{section}.{name}'

    for user, permission in entry.permissions.items():
        yield Thing((PERMISSION, host, user), _permission(permission), at("permissions", user))
    for name, policy in entry.policies.items():
        yield Thing((POLICY, host, name), _policy(policy), at("policies", name))
    for name, policy in entry.operator_policies.items():
        yield Thing((OPERATOR_POLICY, host, name), _policy(policy), at("operator_policies", name))
    for name, exchange in entry.exchanges.items():
        settings = exchange_settings(
            exchange.type, exchange.durable, exchange.auto_delete, exchange.internal, exchange.arguments
        )
        yield Thing((EXCHANGE, host, name), settings, at("exchanges", name))
        for number, each in enumerate(exchange.bindings):
            yield _binding(host, EXCHANGE, name, each, f"{at('exchanges', name)}.bindings[{number}]")
    for name, each_queue in entry.queues.items():
        fields = (each_queue.arguments, each_queue.type, each_queue.durable, each_queue.auto_delete)
        yield queue(host, name, *fields, at("queues", name))
        for number, each in enumerate(each_queue.bindings):
            yield _binding(host, "queue", name, each, f"{at('queues', name)}.bindings[{number}]")


def _binding(host: str, kind: str, destination: str, entry: BindingEntry, place: str) -> Thing:
    return binding(host, entry.exchange, kind, destination, entry.key, entry.arguments, place)


def _permission(entry: PermissionRecord) -> Settings:
    return {"configure": entry.configure, "write": entry.write, "read": entry.read}


def _policy(entry: PolicyRecord) -> Settings:
    return {
        "pattern": entry.pattern,
        "apply-to": entry.apply_to,
        "priority": entry.priority,
        "definition": entry.definition,
    }


def exchange_settings(
    kind: str, durable: bool, auto_delete: bool, internal: bool, arguments: Settings
) -> Settings:
    return {
        "type": kind,
        "durable": durable,
        "auto_delete": auto_delete,
        "internal": internal,
        "arguments": arguments,
    }


def from_json(octets: bytes) -> Topology:
    try:
        content: object = json.loads(octets)
    except (ValueError, RecursionError) as error:
        raise ConfigError([Problem("the file", f"a mistake: {error}", "JSON")]) from None
    return from_definitions(content)


def from_definitions(content: object, host: str = "/", here: str = "") -> Topology:
    """Return the topology of definitions. `host` is the virtual host of objects that name none."""
    rows = RowReader(host, here)
    if not isinstance(content, Mapping):
        raise ConfigError([Problem("the file", "no object", "definitions as RabbitMQ writes them")])
    things = list(rows.things(content))
    if rows.place.problems:
        raise ConfigError(rows.place.problems)
    return topology(things, passed_over=rows.passed_over, has_parameters="parameters" in content)


class RowReader:
    """Reads the rows of definitions, collecting their problems."""

    def __init__(self, host: str, here: str) -> None:
        self.place = Place([], here)
        self.passed_over: list[tuple[str, str]] = []  # places, and sentences about what does not exist here
        self._host = host

    def things(self, content: Row) -> Iterator[Thing]:
        for section, made in SECTIONS.items():
            listed = content.get(section, [])
            if not isinstance(listed, list):
                self.place.at(section).refuse("no list", "a list")
                continue
            for number, row in enumerate(listed):
                place = self.place.at(section).item(number)
                if not isinstance(row, Mapping):
                    place.refuse("no table", "a table")
                elif not is_default(section, row) and (thing := made(self, row, place)) is not None:
                    yield thing

    def host(self, row: Row) -> str:
        return str(row.get("vhost", self._host))

    def virtual_host(self, row: Row, place: Place) -> Thing:
        for key, value in row.items():
            known = DEFINITIONS.get(f"vhosts.{key}")
            if known is not None and known.effect is Effect.NO_EFFECT and value not in known.inert:
                self.passed_over.append((place.path, without_effect(known)))
        metadata = row.get("metadata")
        text = metadata.get(DEFAULT_TYPE) if isinstance(metadata, Mapping) else None
        type_ = text or row.get(DEFAULT_TYPE)
        default = str(type_) if type_ not in (None, "undefined") else None
        return virtual_host(self.text(row, "name", place), default, place.path)

    def user(self, row: Row, place: Place) -> Thing:
        return Thing((USER, self.text(row, "name", place)), {"tags": tags_of(row.get("tags"))}, place.path)

    def permission(self, row: Row, place: Place) -> Thing:
        settings = {name: self.text(row, name, place) for name in ("configure", "write", "read")}
        return Thing((PERMISSION, self.host(row), self.text(row, "user", place)), settings, place.path)

    def policy(self, row: Row, place: Place) -> Thing:
        return self.policy_of(POLICY, row, row, place)

    def parameter(self, row: Row, place: Place) -> Thing | None:
        value, component = row.get("value"), self.text(row, "component", place)
        if component in COMPONENTS:
            if value is None:
                place.at("value").refuse("nothing", "the parameter's value")
            return Thing(
                (component, self.host(row), self.text(row, "name", place)), {"value": value}, place.path
            )
        if component != OPERATOR:
            self.passed_over += ((place.path, warning) for warning in component_warnings(component))
            return None
        return self.policy_of(OPERATOR_POLICY, row, value if isinstance(value, Mapping) else {}, place)

    def policy_of(self, kind: str, row: Row, fields: Row, place: Place) -> Thing:
        definition = fields.get("definition", {})
        if isinstance(definition, list):  # the form that `rabbitmqctl export_definitions` writes
            definition = dict(definition)
        settings = {
            "pattern": self.text(fields, "pattern", place),
            "apply-to": fields.get("apply-to", "all"),
            "priority": fields.get("priority", 0),
            "definition": definition if isinstance(definition, Mapping) else {},
        }
        return Thing((kind, self.host(row), self.text(row, "name", place)), settings, place.path)

    def exchange(self, row: Row, place: Place) -> Thing:
        settings = exchange_settings(
            self.text(row, "type", place),
            self.flag(row, "durable", True, place),
            self.flag(row, "auto_delete", False, place),
            self.flag(row, "internal", False, place),
            self.table(row, place),
        )
        return Thing((EXCHANGE, self.host(row), self.text(row, "name", place)), settings, place.path)

    def queue(self, row: Row, place: Place) -> Thing:
        return queue(
            self.host(row),
            self.text(row, "name", place),
            self.table(row, place),
            self.text(row, "type", place) if row.get("type") is not None else None,
            self.flag(row, "durable", True, place),
            self.flag(row, "auto_delete", False, place),
            place.path,
        )

    def binding(self, row: Row, place: Place) -> Thing:
        source, kind, destination = (
            self.text(row, name, place) for name in ("source", "destination_type", "destination")
        )
        key = str(row.get("routing_key", ""))
        return binding(self.host(row), source, kind, destination, key, self.table(row, place), place.path)

    def text(self, row: Row, name: str, place: Place) -> str:
        value = row.get(name)
        if not isinstance(value, str):
            place.at(name).refuse("nothing" if value is None else "another type", "a string")
        return str(value)

    def flag(self, row: Row, name: str, default: bool, place: Place) -> bool:
        value = row.get(name, default)
        if not isinstance(value, bool):
            place.at(name).refuse("neither", "true or false")
        return bool(value)

    def table(self, row: Row, place: Place) -> Settings:
        value = row.get("arguments", {})
        if isinstance(value, Mapping):
            return value
        if value:  # an empty list is accepted: some tools write an empty table like that
            place.at("arguments").refuse("no table", "a table")
        return {}


SECTIONS: Final[Mapping[str, Callable[[RowReader, Row, Place], Thing | None]]] = {
    "vhosts": RowReader.virtual_host,
    "users": RowReader.user,
    "permissions": RowReader.permission,
    "policies": RowReader.policy,
    "parameters": RowReader.parameter,
    "exchanges": RowReader.exchange,
    "queues": RowReader.queue,
    "bindings": RowReader.binding,
}


def is_default(section: str, row: Row) -> bool:
    """Return whether a row is the default exchange or a binding of it, which are there without being declared."""
    return (section == "exchanges" and row.get("name") == "") or (
        section == "bindings" and row.get("source") == ""
    )


def tags_of(value: object) -> list[str]:
    """Return tags as a list; some files have them as text with commas."""
    tags = value.split(",") if isinstance(value, str) else value
    return sorted(str(tag).strip() for tag in tags if str(tag).strip()) if isinstance(tags, list) else []
