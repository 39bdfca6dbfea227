"""Compiles selectors: SQL conditions on a message's properties, from text to a predicate.

    color = 'red' AND (weight BETWEEN 2 AND 7 OR NOT fragile) AND properties.subject LIKE 'order.%'

The language is that of JMS message selectors, with the names of AMQP's SQL filters:

    color   "my color"                       an application property: in AMQP 0-9-1, a header
    application_properties.color   a.color   the same
    properties.subject   p.subject           a field of AMQP 1.0's properties, or its counterpart in other protocols
    header.priority   h.priority             a field of its header
    amqp.subject   amqp.delivery_mode        a field of either, in Apache Qpid's spelling
    JMSPriority   JMSType   JMSMessageID     the same under their JMS names

In the names of fields - and _ are the same. A hyphen before a letter belongs to a name: a subtraction needs a space.

No well-kept Python library reads this language. A parser generator would be a dependency, and its grammar no shorter
than the two functions that do the work here: `_expression` reads operators by their rank, `_operand` their operands.

Sources: Jakarta Messaging 3.1, section 3.8.1 (as JMS 2.0); AMQP Filter Expressions 1.0, section 6; the filter that is
registered as apache.org:selector-filter:string.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Final

from leveret.errors import PreconditionFailed
from leveret.message import Message
from leveret.selectors.conditions import (
    ARITHMETIC,
    COMPARISONS,
    NUMBER,
    TRUTH,
    AllOf,
    AnyOf,
    Arithmetic,
    Between,
    Comparison,
    ConditionNode,
    Field,
    HeaderField,
    IdField,
    In,
    IsNull,
    Like,
    Literal,
    Negative,
    Not,
    Operations,
    Pattern,
    Reading,
)
from leveret.selectors.message_ids import plain
from leveret.selectors.tokens import END, NAME, VALUE, Token, TokenReader, tokens, wrong

if TYPE_CHECKING:
    from leveret.selectors.bloom import BloomQuery

LENGTH_MAX: Final = 4096  # characters
DEPTH_MAX: Final = 64  # nested operators and parentheses
PATTERN_MAX: Final = 512  # characters of a LIKE pattern, which may take the square of that in bits


class Selector:
    """A condition on messages: a compiled selector, or another filter."""

    __slots__ = ("_condition", "text", "wanted")

    def __init__(self, text: str, condition: ConditionNode, wanted: BloomQuery | None = None) -> None:
        self.text = text  # as the client wrote it
        self._condition = condition
        self.wanted = wanted  # values that a message must have one of to match; None: it need not

    @property
    def condition(self) -> ConditionNode:
        """The condition as a tree, to be evaluated for many messages at once."""
        return self._condition

    def also(self, other: Selector | None) -> Selector:
        """Return the condition that both conditions are met."""
        if other is None:
            return self
        both = AllOf([self._condition, other._condition])
        return Selector(f"({self.text}) AND ({other.text})", both, self.wanted or other.wanted)

    def matches(self, message: Message) -> bool:
        """Return whether the condition is true of the message; unknown counts as false. Never raises."""
        try:
            return self._condition.value(Reading(message)) is True
        except Exception:  # the encoding may raise anything; an unreadable message does not match
            return False


def compile_selector(text: str) -> Selector:
    """Compile a selector. Raises PreconditionFailed, which names the position of the mistake."""
    if len(text) > LENGTH_MAX:
        raise PreconditionFailed(f"it has {len(text)} characters, and may have {LENGTH_MAX}")
    return Selector(text, SelectorParser(tokens(text)).whole())


HEADER: Final = frozenset({"durable", "priority", "ttl"})
PROPERTIES: Final = frozenset(
    {
        "absolute_expiry_time",
        "content_encoding",
        "content_type",
        "correlation_id",
        "creation_time",
        "group_id",
        "group_sequence",
        "message_id",
        "reply_to",
        "reply_to_group_id",
        "subject",
        "to",
        "user_id",
    }
)
APPLICATION: Final = frozenset({"application_properties", "a"})
SECTIONS: Final = {
    "header": HEADER,
    "h": HEADER,
    "properties": PROPERTIES,
    "p": PROPERTIES,
    "amqp": HEADER | PROPERTIES | {"delivery_mode"},
    **dict.fromkeys(
        ("delivery_annotations", "d", "message_annotations", "m", "footer", "f"), frozenset[str]()
    ),
}
JMS: Final = {
    "JMSCorrelationID": "correlation_id",
    "JMSDeliveryMode": "delivery_mode",
    "JMSDestination": "to",
    "JMSMessageID": "message_id",
    "JMSPriority": "priority",
    "JMSReplyTo": "reply_to",
    "JMSTimestamp": "creation_time",
    "JMSType": "type",
    "JMSXGroupID": "group_id",
    "JMSXGroupSeq": "group_sequence",
    "JMSXUserID": "user_id",
}
JMS_IDS: Final = ("JMSMessageID", "JMSCorrelationID")
JMS_OTHERS: Final = ("JMSX", "JMS_")  # prefixes of names that applications or their libraries may define


def named(name: str) -> ConditionNode | None:
    """Return the node for a name; None if the name is reserved and has no meaning in a selector."""
    if name in JMS:
        return (IdField if name in JMS_IDS else Field)(JMS[name])
    section, dot, field = name.partition(".")
    section = section.replace("-", "_")
    if dot and section in APPLICATION:
        return HeaderField(field)
    if dot and section in SECTIONS:
        field = field.replace("-", "_")
        return Field(field) if field in SECTIONS[section] else None
    return None if name.startswith("JMS") and not name.startswith(JMS_OTHERS) else HeaderField(name)


RANKS: Final = {
    "OR": 1,
    "AND": 2,
    **dict.fromkeys((*COMPARISONS, "NOT", "BETWEEN", "IN", "LIKE", "IS"), 4),
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "%": 6,
}
INVERTING, COMPARING, SIGNING = 3, 4, 7


class SelectorParser(TokenReader):
    """A recursive-descent parser for the tokens of one text."""

    operations: ClassVar[Operations] = ARITHMETIC

    def __init__(self, tokens: Iterable[Token]) -> None:
        super().__init__(tokens)
        self._depth = 0

    def whole(self) -> ConditionNode:
        """Return the condition that the whole text states. Raises PreconditionFailed."""
        condition = self._expression(0, TRUTH)
        self._expect("AND", "OR", END)
        return condition

    def _expression(self, least: int, kind: str | None = None) -> ConditionNode:
        """Read an expression up to an operator that binds no tighter than `least`; it must be of the `kind`."""
        at, most = self._tokens[self._at].at, SIGNING
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise wrong(at, f"it is nested more than {DEPTH_MAX} deep")
        left = self._operand()
        while least < (rank := RANKS.get(self._next, 0)) <= most:
            left = self._comparison(left) if rank == COMPARING else self._operation(left, at, rank)
            most = rank - (rank == COMPARING)  # comparisons do not chain: a < b < c is an error
        self._depth -= 1
        return of_kind(kind, left, at)

    def _operation(self, left: ConditionNode, at: int, rank: int) -> ConditionNode:
        sign = self._take().symbol
        kind = TRUTH if rank < COMPARING else NUMBER
        of_kind(kind, left, at)
        right = self._expression(rank, kind)
        if kind == NUMBER:
            chain = left if isinstance(left, Arithmetic) else Arithmetic(left, self.operations)
            chain.steps.append((sign, right))
            return chain
        joins = AllOf if sign == "AND" else AnyOf
        if type(left) is not joins:
            return joins([left, right])
        left.parts.append(right)
        return left

    def _comparison(self, left: ConditionNode) -> ConditionNode:
        token = self._take()
        sign = token.symbol
        if sign in COMPARISONS:
            right = self._expression(COMPARING)
            return Comparison(sign, id_for(right, left), id_for(left, right))
        if sign == "NOT":
            return Not(self._special(self._expect("BETWEEN", "IN", "LIKE"), left))
        return self._special(token, left)

    def _special(self, token: Token, left: ConditionNode) -> ConditionNode:
        if token.symbol == "IS":
            return self._is_null(token.at, left)
        if token.symbol == "IN":
            items = self._items()
            return In(left, map(plain_id, items) if isinstance(left, IdField) else items)
        if token.symbol == "LIKE":
            return Like(left, self._pattern())
        low = self._expression(COMPARING)
        self._expect("AND")
        return Between(left, low, self._expression(COMPARING))

    def _is_null(self, at: int, left: ConditionNode) -> ConditionNode:
        if not isinstance(left, HeaderField | Field):
            raise wrong(at, "only what has a name can be NULL")
        negated = self._expect("NOT", "NULL").symbol == "NOT"
        if negated:
            self._expect("NULL")
        return Not(IsNull(left)) if negated else IsNull(left)

    def _items(self) -> list[bool | int | float | str]:
        """Read the list of values of IN; JMS has strings only."""
        self._expect("(")
        items: list[bool | int | float | str] = []
        while not items or self._expect(",", ")").symbol == ",":
            at = self._tokens[self._at].at
            item = self._expression(COMPARING)
            if not isinstance(item, Literal):
                raise wrong(at, f"{VALUE} is expected")
            items.append(item.said)
        return items

    def _pattern(self) -> Pattern:
        at = self._tokens[self._at].at
        pattern, escape = self._string(), None
        if self._next == "ESCAPE":
            self._take()
            escape = self._string()
        if len(pattern) > PATTERN_MAX:
            raise wrong(at, f"a pattern has more than {PATTERN_MAX} characters")
        if escape is not None and len(escape) != 1:
            raise wrong(at, "what escapes is one character")
        try:
            return Pattern(pattern, escape)
        except ValueError as error:
            raise wrong(at, f"the pattern is wrong: {error}") from None

    def _string(self) -> str:
        token = self._expect(VALUE)
        if not isinstance(token.says, str):
            raise wrong(token.at, "a string is expected")
        return token.says

    def _operand(self) -> ConditionNode:
        token = self._expect(VALUE, NAME, "(", "NOT", "-", "+")
        if token.symbol == VALUE:
            return self._literal(token)
        if token.symbol == NAME:
            return self._named(token)
        if token.symbol == "(":
            inner = self._expression(0)
            self._expect(")")
            return inner
        if token.symbol == "NOT":
            return Not(self._expression(INVERTING, TRUTH))
        number = self._expression(SIGNING, NUMBER)
        if token.symbol == "+":
            return Arithmetic(number, self.operations)
        value = number.said if isinstance(number, Literal) else ""
        return Negative(number) if isinstance(value, str) else Literal(-value)

    def _literal(self, token: Token) -> ConditionNode:
        assert not isinstance(token.says, bytes), "selectors have no binary values"
        return Literal(token.says)

    def _named(self, token: Token) -> ConditionNode:
        name = str(token.says)
        node = named(name)
        if node is None:
            raise wrong(token.at, f"nothing can be selected by '{name[:60]}'")
        return node

    def _expect(self, *symbols: str) -> Token:
        """Take the next token, which must be one of these. Raises PreconditionFailed."""
        taken = self._take()
        if taken.symbol not in symbols:
            *most, last = [symbol if symbol in (NAME, VALUE, END) else f"'{symbol}'" for symbol in symbols]
            expected = f"{', '.join(most)} or {last}" if most else last
            raise wrong(taken.at, f"{expected} is expected, not {taken}")
        return taken


def id_for(other: ConditionNode, side: ConditionNode) -> ConditionNode:
    """Return one side of a comparison; a text that is compared with an id becomes that id."""
    if isinstance(other, IdField) and isinstance(side, Literal):
        return Literal(plain_id(side.said))
    return side


def plain_id(value: bool | int | float | str) -> bool | int | float | str:
    return plain(value) if isinstance(value, str) else value


def of_kind(kind: str | None, node: ConditionNode, at: int) -> ConditionNode:
    """Return the node. Raises PreconditionFailed if its value can never be of this kind."""
    if kind is not None and node.kind not in (None, kind):
        raise wrong(at, f"a {kind} is expected, not a {node.kind}")
    return node
