"""`x-jms-topic`: to each bound queue whose selector a message meets, for RabbitMQ's JMS client.

    topic exchange ──"news.#"──> x-jms-topic exchange ──{'>',{'ident',<<"price">>},10}.──> queue

That client has topics in a topic exchange; for subscriptions with a selector it puts an exchange of this type behind
it. Routing keys do not matter here. The binding argument `rjms_erlang_selector` is the selector as an Erlang term; a
binding without one gets nothing, as in RabbitMQ, unless it has our own argument for selectors. Terms that cannot be
read are refused. The argument `rjms_version` is the version of the client, and may differ when the exchange is declared
again.

Source: RabbitMQ's exchange type of this name, in its JMS topic exchange plug-in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from leveret.arguments.checks import text_fault
from leveret.arguments.exchange_arguments import ExchangeArgument
from leveret.arguments.row import Row
from leveret.errors import PreconditionFailed
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import ExchangeType, LooksAt
from leveret.message import Message
from leveret.selectors.erlang_term import compile_term
from leveret.values import Table, type_name

if TYPE_CHECKING:
    from leveret.selectors.parser import Selector

TERM: Final = "rjms_erlang_selector"
VERSION: Final = "rjms_version"
VERSION_ABOUT: Final = "The version of RabbitMQ's JMS client that asks for it, for people to see."
NO_SELECTOR: Final = f"without {TERM} the binding gets no messages"


class JmsTopic(ExchangeType):
    name = "x-jms-topic"
    looks_at = LooksAt.NOTHING
    arguments = (ExchangeArgument(name=VERSION, about=VERSION_ABOUT, check=text_fault, example="3.4.0"),)
    binding_arguments = (
        Row(
            name=TERM,
            about="The condition on messages, without which they do not go this way: a selector as an Erlang term.",
            check=text_fault,
        ),
        Row(name=VERSION, about=VERSION_ABOUT, check=text_fault),
    )

    def binding_selector(self, arguments: Table) -> Selector | None:
        own, given = term_selector(arguments), super().binding_selector(arguments)
        return given if own is None else own.also(given)

    def route(self, message: Message) -> Iterable[Destination]:
        return [binding.destination for binding in self.exchange.bindings if binding.selector is not None]

    def equivalent(self, arguments: Table) -> str | None:
        return None

    def binding_warnings(self, arguments: Table) -> list[str]:
        warnings = super().binding_warnings(arguments)
        return warnings if self.has_selector(arguments) else [*warnings, NO_SELECTOR]

    def has_selector(self, arguments: Table) -> bool:
        """Return whether a binding with these arguments has a selector, be it one that cannot be read today."""
        try:
            return self.binding_selector(arguments) is not None
        except PreconditionFailed:
            return True


def term_selector(arguments: Table) -> Selector | None:
    """Return the selector that is an Erlang term, if there is one. Raises PreconditionFailed if it is wrong."""
    if TERM not in arguments:
        return None
    text = arguments[TERM]
    if not isinstance(text, str):
        raise PreconditionFailed(f"{TERM} is of type {type_name(text)}, not a text in UTF-8")
    try:
        return compile_term(text)
    except PreconditionFailed as error:
        raise PreconditionFailed(f"the selector of the binding is wrong: {error}") from None
