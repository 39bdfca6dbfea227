"""Declarations of an exchange that is there already: they have to ask for what it is (S037-S040)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.arguments.checks import text
from leveret.arguments.deduplication_settings import CHECKS
from leveret.errors import PreconditionFailed
from leveret.exchanges.answer import mistakes_refused
from leveret.exchanges.exchange_type import inequivalent
from leveret.values import Table, described, type_name

if TYPE_CHECKING:
    from leveret.config.compat import Compat
    from leveret.exchanges.exchange_type import Exchange


def check_alternate(name: str, virtual_host: str, arguments: Table) -> None:
    """Raise PreconditionFailed if the argument of a new exchange names no alternate."""
    alternate = arguments.get("alternate-exchange")
    if "alternate-exchange" in arguments and text(alternate) is None:
        raise PreconditionFailed(
            f"invalid type '{type_name(alternate)}' for arg 'alternate-exchange' "
            f"in exchange '{name}' in vhost '{virtual_host}'"
        )


def require_equivalent(
    current: Exchange,
    type_: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Table,
    compat: Compat,
) -> None:
    """Raise PreconditionFailed, or what the profile says, unless a declaration fits the exchange that is there."""
    pairs = (
        ("type", type_, current.type.name),
        ("durable", truth(durable), truth(current.durable)),
        ("auto_delete", truth(auto_delete), truth(current.auto_delete)),
        ("internal", truth(internal), truth(current.internal)),
    )
    for argument, new, old in pairs:
        if new != old:
            error = inequivalent(
                argument, "exchange", current.name, current.virtual_host.name, f"'{new}'", f"'{old}'"
            )
            raise compat.redeclare_error(argument, error)
    with mistakes_refused(type(current.type), f"compare arguments of exchange '{current.name}'"):
        differs = current.type.equivalent(arguments)
    if differs is None:
        differs = next((n for n in CHECKS if arguments.get(n) != current.arguments.get(n)), None)
    if arguments.get("alternate-exchange") != current.arguments.get("alternate-exchange"):
        differs = "alternate-exchange"
    if differs is not None:
        new, old = described(arguments.get(differs)), described(current.arguments.get(differs))
        raise inequivalent(differs, "exchange", current.name, current.virtual_host.name, new, old)


def truth(value: bool) -> str:
    return "true" if value else "false"
