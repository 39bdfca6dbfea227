"""Check a configuration as far as can be done without a start: everything that would stop one is found at once.

Plug-ins, certificates and definitions files are read; nothing is listened on, and no data is opened.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from leveret.arguments.names import shown
from leveret.broker import Broker
from leveret.config.config import Config, ConfigError, family_of
from leveret.config.listener import ListenerEntry
from leveret.config.types import Address, Problem, printed
from leveret.front_end import queue_arguments_of
from leveret.server.node import logs
from leveret.server.node.assembly import (
    Read,
    check_protocols,
    entrance_of,
    entries,
    intercept,
    mechanism_warnings,
    populate,
    protocol_warnings,
    read_definitions,
)
from leveret.server.plugin_loader import BadPlugin, Plugins

NOTHING: Final = Config()


def rehearse(config: Config) -> list[str]:
    """Try a start without listening. Return the warnings of what has no effect. Raises ConfigError."""
    problems, warnings = findings(config)
    if problems:
        raise ConfigError(problems)
    return warnings


def findings(config: Config, refused: Sequence[Problem] = ()) -> tuple[list[Problem], list[str]]:
    """Return all that would stop a start, and the warnings of what has no effect.

    `refused` are problems that the configuration had besides: what they concern is not tried where it is named.
    """
    plugins = Plugins(config.plugins.folders, config.plugins.disabled)
    problems = list(refused)
    try:
        plugins.load()
    except BadPlugin as error:
        problems.append(Problem(f"plugins: {error.source}", error.reason))
    tried = without_refused(config, refused)
    files: Read = []
    try:
        files = read_definitions(tried)
    except ConfigError as error:
        problems += error.problems
    rehearsed = Broker(exchange_types=plugins.exchange_types, compat=config.compat.chosen)
    rehearsed.queue_arguments = queue_arguments_of(plugins.protocols.values())
    warnings = [*protocol_warnings(config, plugins.protocols), *mechanism_warnings(config)]
    rehearsed.notices.tell = warnings.append
    steps: list[Callable[[], object]] = [
        partial(check_protocols, config, plugins.protocols),
        partial(populate, rehearsed, tried, files),
        partial(intercept, rehearsed, config, plugins),
        lambda: warnings.extend(logs.check(config.log)),
        partial(check_audit, config),
        partial(check_data_folder, config.node.data_dir),
    ]
    warnings += address_warnings(entries(config, plugins.protocols))
    for where, entry in entries(config, plugins.protocols):
        steps.append(partial(entrance_of, config, entry, where, plugins.protocols))
    for step in steps:
        try:
            step()
        except ConfigError as error:
            problems += error.problems
    return problems, warnings


def without_refused(config: Config, refused: Iterable[Problem]) -> Config:
    """Return a configuration without the policies, if one of them was refused, and without what names virtual hosts
    beyond those that it has, if some of these could not be read."""
    places = [each.where for each in refused]
    if any(where.startswith("virtual_hosts") for where in places):
        return attrs.evolve(config, definitions=NOTHING.definitions, users=NOTHING.users, policies=())
    if any(where.startswith("policies") for where in places):
        return attrs.evolve(config, policies=())
    return config


def check_audit(config: Config) -> None:
    """Raise ConfigError if the audit log cannot be written to."""
    if config.log.audit not in ("", "log"):
        path = Path(config.log.audit)
        folder = path if path.exists() else path.parent
        if path.is_dir() or not os.access(folder, os.W_OK):
            raise ConfigError(
                [Problem("log.audit", printed(config.log.audit), "a file that can be written to")]
            )


def check_data_folder(path: Path | None) -> None:
    """Raise ConfigError if the data folder is none, or cannot be made or written to."""
    if path is None:
        return
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return
    what = "a folder that can be written to" if there == path else f"a folder that can be made in {there}"
    raise ConfigError([Problem("node.data_dir", printed(str(path)), what)])


def address_warnings(listeners: Iterable[tuple[str, ListenerEntry]]) -> Iterator[str]:
    """Yield a warning for each address that this machine does not have; that which will run the node may have it."""
    for where, entry in listeners:
        if isinstance(entry.address, Address) and not is_here(entry.address.host):
            yield f"{where}.address: this machine has no address {shown(entry.address.host)}"


def is_here(host: str) -> bool:
    """Return whether this machine has an address. Of names that is not known: asking for them could take long."""
    kind = family_of(host)
    if kind == "name":
        return True
    family = socket.AF_INET6 if kind == "IPv6" else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.bind((host, 0))
    except OSError as failure:
        return failure.errno != errno.EADDRNOTAVAIL
    return True
