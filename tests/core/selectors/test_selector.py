"""Selectors: what the language says, what it is said of, and that nobody's text or message can do harm."""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import PreconditionFailed
from leveret.message import Facts, Message
from leveret.selectors.conditions import Pattern
from leveret.selectors.parser import DEPTH_MAX, LENGTH_MAX, PATTERN_MAX, compile_selector
from leveret.testing.fakes import FakeEncoding, fake_message
from leveret.values import Int64, Properties, Table, Timestamp, Value
from tests.harness.call_count import calls

HEADERS: Table = {
    "color": "red",
    "quote": "it's",
    "weight": 5,
    "price": 2.5,
    "long": Int64(1 << 40),
    "since": Timestamp(100),
    "exact": Decimal("0.5"),
    "fragile": True,
    "sold": False,
    "octets": b"\xff",
    "list": [1],
    "nothing": None,
    "uuid": UUID(int=1),
    "x-opt-place": "here",
    "com.acme.key": "dotted",
    "my color": "blue",
    "Größe": 3,
    "$a_1": 1,
    'say "hi"': "hello",
    "JMS_vendor": "ours",
}


def of(headers: Table) -> Message:
    return fake_message(headers=headers)


def selects(text: str, message: Message | None = None) -> bool:
    return compile_selector(text).matches(message or of(HEADERS))


# The language.

TRUE = [
    "color = 'red'",
    "color <> 'blue' AND color != 'blue'",
    "color >= 'red' AND color < 'ree' AND color > 'rec' AND color <= 'red'",
    "quote = 'it''s'",
    "weight = 5 AND weight = 5.0 AND weight = 5e0 AND weight = 0x5 AND weight = 05 AND weight = 5L",
    "price = 2.5 AND price = 2.5f AND price = .25E1 AND price = 25E-1D AND price < 3. AND price < 3d",
    "weight = 0X5l AND 017 = 15",
    "long = 1099511627776 AND long > weight AND price < weight",
    "since = 100 AND exact = 0.5 AND exact < 0.6",
    "uuid = '00000000-0000-0000-0000-000000000001'",
    "fragile",
    "fragile = TRUE AND sold = false AND fragile <> sold",
    "NOT sold",
    "NOT color = 'blue'",
    "NOT NOT fragile",
    "fragile OR sold AND sold",
    "NOT sold AND fragile",
    "(sold OR fragile) AND NOT (fragile AND sold)",
    "fragile or sold And not SOLD",  # SOLD is another name, and unknown
    "weight + 1 = 6 AND weight - 1 = 4 AND weight * 2 = 10 AND weight / 2 = 2 AND weight % 2 = 1",
    "weight + 2 * 3 = 11 AND (weight + 2) * 3 = 21",
    "weight - 2 - 1 = 2 AND 100 / weight / 2 = 10 AND 100 / weight * 2 = 40",
    "-weight = -5 AND +weight = 5 AND - -weight = 5 AND -(weight - 1) = -4 AND weight*-1 = -weight",
    "weight-1 = 4",
    "-7 / 2 = -3 AND 7 / -2 = -3 AND -7 / -2 = 3 AND 7.0 / 2 = 3.5",
    "-7 % 2 = -1 AND 7 % -2 = 1 AND 7.5 % 2 = 1.5 AND -7.5 % 2 = -1.5",
    "weight BETWEEN 5 AND 5 AND weight NOT BETWEEN 6 AND 9 AND NOT weight BETWEEN 1 AND 4",
    "weight BETWEEN 2 + 2 AND 2 * 3 OR sold",
    "color BETWEEN 'ra' AND 'rz'",
    "color IN ('blue', 'red') AND color NOT IN ('blue') AND weight IN (-1, 5.0, 'x', TRUE)",
    "color LIKE 'r%' AND color LIKE '%d' AND color LIKE '%e%' AND color LIKE 'r_d' AND color LIKE '%'",
    "color LIKE 'red' AND color NOT LIKE 're' AND color NOT LIKE 'red_'",
    "'50%' LIKE '50!%' ESCAPE '!' AND '505' NOT LIKE '50!%' ESCAPE '!' AND 'a_b' LIKE 'a\\_b' ESCAPE '\\'",
    "'!' LIKE '!!' ESCAPE '!' AND 'a%' LIKE 'a%%' ESCAPE '%' AND 'ab' NOT LIKE 'a%%' ESCAPE '%'",
    "nothing IS NULL AND missing IS NULL AND color IS NOT NULL AND octets IS NOT NULL AND list IS NOT NULL",
    "(missing) IS NULL",
    "x-opt-place = 'here' AND com.acme.key = 'dotted' AND \"my color\" = 'blue' AND Größe = 3 AND $a_1 = 1",
    "a.color = 'red' AND application_properties.weight = 5 AND application-properties.weight = 5 AND \"a.weight\" = 5",
    '"say ""hi""" = \'hello\' AND JMS_vendor = \'ours\' AND JMSXOther IS NULL',
    " \t\r\ncolor\f=\v'red' ",
    "color='red'AND weight=5",
    "TRUE",
]
FALSE = [
    "color = 'Red'",
    "1e308 * 10 - 1e308 * 10 = 0",  # the difference of two infinities is no number
    "sold",
    "NOT fragile",
    "weight BETWEEN 6 AND 4",
    "weight BETWEEN 1 AND 4 OR weight BETWEEN 6 AND 9",
    "color IN ('blue')",
    "weight IN ('5', TRUE)",
    "fragile IN (1)",
    "color IS NULL",
    "missing IS NOT NULL",
    "color LIKE 're' OR color LIKE '_' OR color LIKE 'r__d' OR color LIKE '%x%' OR color LIKE ''",
    "FALSE",
]
UNLIKE = [  # values of different kinds, of which every comparison is false
    f"{left} {sign} {right}"
    for left, right in (
        ("color", "5"),
        ("weight", "'5'"),
        ("fragile", "1"),
        ("fragile", "'TRUE'"),
        ("octets", "'x'"),
        ("octets", "octets"),
        ("list", "1"),
    )
    for sign in ("=", "<>", "<", "<=", ">", ">=")
] + [
    "fragile > sold",
    "fragile >= TRUE",
    "weight LIKE '5'",
    "weight BETWEEN 'a' AND 'b'",
    "color BETWEEN 1 AND 9",
]
UNKNOWN = [
    "missing",
    "missing = 'x'",
    "missing <> 'x'",
    "missing = missing",
    "nothing = 5",
    "missing LIKE '%'",
    "missing NOT LIKE 'a'",
    "missing IN ('a')",
    "missing NOT IN ('a')",
    "missing BETWEEN 1 AND 2",
    "weight BETWEEN missing AND 9",
    "missing NOT BETWEEN 1 AND 2",
    "missing + 1 = 1",
    "-missing < 1",
    "+missing < 1",
    "weight / 0 = 1",
    "weight % 0 = 1",
    "price / 0.0 = 1",
    "price % 0.0 = 1",
    "color + 1 = 1",
    "-color = 1",
    "fragile + 1 = 2",
    "Color = 'red'",
    "weight AND TRUE",  # a number is no boolean
    "color OR FALSE",
]


@pytest.mark.parametrize("text", TRUE)
def test_what_is_true_selects(text: str) -> None:
    assert selects(text)
    assert not selects(f"NOT ({text})")


@pytest.mark.parametrize("text", FALSE + UNLIKE)
def test_what_is_false_does_not_and_its_opposite_is_true(text: str) -> None:
    assert not selects(text)
    assert selects(f"NOT ({text})")


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_is_unknown_does_not_select_and_neither_does_its_opposite(text: str) -> None:
    assert not selects(text)
    assert not selects(f"NOT ({text})")
    assert selects(f"({text}) OR TRUE")  # it is not that the message cannot be read


T, F, U = True, False, None
WORDS = {T: "yes", F: "no", U: "unknown"}


@pytest.mark.parametrize(
    ("sign", "table"),
    [
        (
            "AND",
            {
                (T, T): T,
                (T, F): F,
                (T, U): U,
                (F, T): F,
                (F, F): F,
                (F, U): F,
                (U, T): U,
                (U, F): F,
                (U, U): U,
            },
        ),
        (
            "OR",
            {
                (T, T): T,
                (T, F): T,
                (T, U): T,
                (F, T): T,
                (F, F): F,
                (F, U): U,
                (U, T): T,
                (U, F): U,
                (U, U): U,
            },
        ),
    ],
)
def test_three_valued_logic(sign: str, table: dict[tuple[bool | None, bool | None], bool | None]) -> None:
    message = of({"yes": True, "no": False})
    for (left, right), result in table.items():
        text = f"{WORDS[left]} {sign} {WORDS[right]}"
        assert selects(text, message) is (result is T), text
        assert selects(f"NOT ({text})", message) is (result is F), text


# Names.

PROPERTIES = Properties(
    content_type="text/plain",
    content_encoding="gzip",
    correlation_id="c1",
    reply_to="replies",
    message_id="m1",
    timestamp=100,
    type="kind",
    user_id="guest",
    app_id="group",
)


class Encoding10(FakeEncoding):
    """Knows what only AMQP 1.0 has."""

    def property(self, properties: bytes, name: str) -> Value:
        own: Table = {
            "subject": "news",
            "to": "/queues/q",
            "group_sequence": 7,
            "creation_time": 100_001,
            "absolute_expiry_time": 5,
            "group_id": "own",
        }
        return own[name] if name in own else super().property(properties, name)


@pytest.mark.parametrize(
    ("names", "plain", "amqp10"),
    [
        ("JMSMessageID properties.message-id p.message_id amqp.message_id", "'m1'", "'m1'"),
        ("JMSCorrelationID properties.correlation-id amqp.correlation_id", "'c1'", "'c1'"),
        ("JMSReplyTo properties.reply-to amqp.reply_to", "'replies'", "'replies'"),
        ("JMSXUserID properties.user-id", "'guest'", "'guest'"),
        ("p.content-type amqp.content_type", "'text/plain'", "'text/plain'"),
        ("p.content-encoding", "'gzip'", "'gzip'"),
        ("JMSTimestamp properties.creation-time amqp.creation_time", "100000", "100001"),
        ("JMSXGroupID properties.group-id amqp.group_id", "'group'", "'own'"),
        ("JMSXGroupSeq properties.group-sequence p.group_sequence", None, "7"),
        ("JMSType", "'kind'", "'kind'"),
        ("properties.subject p.subject amqp.subject", None, "'news'"),
        ("JMSDestination properties.to amqp.to", None, "'/queues/q'"),
        ("p.absolute-expiry-time", None, "5"),
        ("p.reply-to-group-id", None, None),
        ("JMSPriority header.priority h.priority amqp.priority", "9", "9"),
        ("JMSDeliveryMode amqp.delivery_mode", "'PERSISTENT'", "'PERSISTENT'"),
        ("header.durable amqp.durable", "TRUE", "TRUE"),
        ("header.ttl amqp.ttl", "60", "60"),
    ],
)
def test_a_field_has_a_name_in_every_dialect(names: str, plain: str | None, amqp10: str | None) -> None:
    facts = Facts(durable=True, priority=9, ttl_ms=60)
    for encoding, expected in ((FakeEncoding(PROPERTIES), plain), (Encoding10(PROPERTIES), amqp10)):
        message = Message(encoding, "", "", b"", b"", facts)
        for name in names.split():
            for spelled in (name, f'"{name}"'):
                assert selects(
                    f"{spelled} IS NULL" if expected is None else f"{spelled} = {expected}", message
                )


def test_what_nobody_has_said_has_a_default() -> None:
    assert selects(
        "JMSPriority = 4 AND JMSDeliveryMode = 'NON_PERSISTENT' AND h.durable = FALSE AND h.ttl IS NULL"
    )
    assert selects("JMSPriority = 0", fake_message(properties=Properties(priority=0)))


def test_a_type_is_a_subject_in_amqp_1_0() -> None:
    assert selects("JMSType = 'news'", Message(Encoding10(Properties()), "", "", b"", b""))


# What is refused.


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "at character 1, a value, a name, '(', 'NOT', '-' or '+' is expected, not the end"),
        ("color =", "at character 8, a value, a name, '(', 'NOT', '-' or '+' is expected, not the end"),
        ("color = = 5", "at character 9, a value, a name, '(', 'NOT', '-' or '+' is expected, not '='"),
        ("color 'red'", "at character 7, 'AND', 'OR' or the end is expected, not a value"),
        ("color = 'red' weight", "at character 15, 'AND', 'OR' or the end is expected, not a name"),
        ("(color = 'red'", "at character 15, ')' is expected, not the end"),
        ("color = 'red')", "at character 14, 'AND', 'OR' or the end is expected, not ')'"),
        ("1 < weight < 9", "at character 12, 'AND', 'OR' or the end is expected, not '<'"),
        ("color = 'red", "at character 9, a quotation has no end"),
        ('"color = 5', "at character 1, a quotation has no end"),
        ('"" = 5', "at character 1, a quotation has no end"),
        ("color # 5", "at character 7, '# 5' is no word"),
        ("weight = 5kg", "at character 10, '5kg' is no word"),
        ("weight = 2.5kg", "at character 11, '.5kg' is no word"),
        ("weight = 1e5x", "at character 10, '1e5x' is no word"),
        ("weight = 089", "at character 10, '089' is no octal number"),
        ("weight NOT 5", "at character 12, 'BETWEEN', 'IN' or 'LIKE' is expected, not a value"),
        ("weight IS 5", "at character 11, 'NOT' or 'NULL' is expected, not a value"),
        ("weight IS NOT 5", "at character 15, 'NULL' is expected, not a value"),
        ("5 IS NULL", "at character 3, only what has a name can be NULL"),
        ("weight = NULL", "at character 10, a value, a name, '(', 'NOT', '-' or '+' is expected, not 'NULL'"),
        ("weight IN ()", "at character 12, a value, a name, '(', 'NOT', '-' or '+' is expected"),
        ("weight IN (5", "at character 13, ',' or ')' is expected, not the end"),
        ("weight IN (price)", "at character 12, a value is expected"),
        ("weight BETWEEN 1 OR 2", "at character 18, 'AND' is expected, not 'OR'"),
        ("color LIKE 5", "at character 12, a string is expected"),
        ("color LIKE color", "at character 12, a value is expected, not a name"),
        ("color LIKE 'a' ESCAPE 'bc'", "at character 12, what escapes is one character"),
        (
            "color LIKE 'a!' ESCAPE '!'",
            "at character 12, the pattern is wrong: it ends with its escape character",
        ),
        ("weight", None),
        ("5", "at character 1, a boolean is expected, not a number"),
        ("'red'", "at character 1, a boolean is expected, not a string"),
        ("weight + 1", "at character 1, a boolean is expected, not a number"),
        ("sold AND 5", "at character 10, a boolean is expected, not a number"),
        ("NOT 'a'", "at character 5, a boolean is expected, not a string"),
        ("weight + 'a' = 5", "at character 10, a number is expected, not a string"),
        ("(sold = TRUE) * 2 = 5", "at character 1, a number is expected, not a boolean"),
        ("-'a' = 5", "at character 2, a number is expected, not a string"),
        ("properties.color = 5", "at character 1, nothing can be selected by 'properties.color'"),
        ("message-annotations.x = 5", "nothing can be selected by 'message-annotations.x'"),
        ("sold AND JMSRedelivered", "at character 10, nothing can be selected by 'JMSRedelivered'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(text: str, why: str | None) -> None:
    if why is None:
        compile_selector(text)
        return
    with pytest.raises(PreconditionFailed) as raised:
        compile_selector(text)
    assert why in str(raised.value)


def test_lengths_and_depths_are_bounded() -> None:
    compile_selector("a" * LENGTH_MAX)
    compile_selector(f"a LIKE '{'_' * PATTERN_MAX}'")
    compile_selector("(" * (DEPTH_MAX - 1) + "a" + ")" * (DEPTH_MAX - 1))
    compile_selector("NOT " * (DEPTH_MAX - 1) + "a")
    for text, why in (
        ("a" * (LENGTH_MAX + 1), f"it has {LENGTH_MAX + 1} characters, and may have {LENGTH_MAX}"),
        (
            f"a LIKE '{'_' * (PATTERN_MAX + 1)}'",
            f"at character 8, a pattern has more than {PATTERN_MAX} characters",
        ),
        ("(" * DEPTH_MAX + "a" + ")" * DEPTH_MAX, "it is nested more than 64 deep"),
        ("NOT " * DEPTH_MAX + "a", "it is nested more than 64 deep"),
        ("- " * DEPTH_MAX + "a = 1", "it is nested more than 64 deep"),
        ("a OR a AND a = 1 + 1 * (" * 40, "it is nested more than 64 deep"),
    ):
        with pytest.raises(PreconditionFailed, match=why):
            compile_selector(text)


@pytest.mark.parametrize(
    "text",
    [
        " OR ".join(["sold"] * 500 + ["fragile"]),
        " AND ".join(["fragile"] * 340),
        " + ".join(["1"] * 1000) + " = 1000",
        " - ".join(["weight"] * 400) + " < 0",
        "weight IN (" + ", ".join(map(str, range(800))) + ")",
        "fragile" + " OR weight * 2 + 3 > 4 AND NOT sold" * 100,
    ],
)
def test_what_is_long_is_not_deep(text: str) -> None:
    assert selects(text)


@pytest.mark.parametrize("word", ["OR", "AND"])
def test_a_chain_of_conditions_is_one_node(word: str) -> None:
    message, chain = of(HEADERS), compile_selector(f" {word} ".join(["missing"] * 300))
    counted = calls(lambda: chain.matches(message))
    assert (counted["HeaderField.value"], counted["AnyOf.value"]) == (
        300,
        1,
    )  # AND is an OR that ends with false


SCRAPS = """
    AND OR NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE FALSE = <> < + - * / % ( ) , 5 0x1 .5 1e9
    '%' '' 'a' a b p.to JMSType "q" ' " # é - . 08
"""
scraps = st.sampled_from(SCRAPS.split())


@given(st.one_of(st.lists(scraps, max_size=30).map(" ".join), st.text(max_size=60)))
def test_any_text_is_compiled_or_refused_and_nothing_else(text: str) -> None:
    try:
        selector = compile_selector(text)
    except PreconditionFailed:
        return
    assert selector.text == text
    assert selector.matches(of({"a": 1, "b": "x"})) in (True, False)


# Messages.


class Broken(FakeEncoding):
    def headers(self, properties: bytes) -> Table:
        raise ValueError("not these")

    def read(self, properties: bytes) -> Properties:
        raise ValueError("nor these")


def test_what_cannot_be_read_is_not_selected() -> None:
    message = Message(Broken(Properties()), "", "", b"", b"", Facts(has_headers=True))
    assert not any(
        selects(text, message) for text in ("a = 1", "a IS NULL", "JMSType IS NULL", "NOT JMSType = 'a'")
    )
    assert selects("TRUE OR a = 1", message)


def test_properties_are_read_once_and_only_when_they_are_asked_for() -> None:
    message = of(HEADERS)
    message.facts.priority = 3

    def reads(text: str) -> Counter[str]:
        selector = compile_selector(text)
        return calls(lambda: selector.matches(message))

    twice = reads("weight > 1 AND color = 'red' AND JMSMessageID IS NULL AND p.message-id IS NULL")
    assert (twice["FakeEncoding.headers"], twice["FakeEncoding.read"]) == (1, 1)
    neither = reads("JMSPriority = 3 OR color = 'red' OR JMSType = 'a'")
    assert (neither["FakeEncoding.headers"], neither["FakeEncoding.read"]) == (0, 0)


# LIKE.


@given(st.text("ab%_!", max_size=9), st.text("ab%", max_size=9), st.sampled_from([None, "!", "_"]))
def test_like_is_as_a_regular_expression(pattern: str, text: str, escape: str | None) -> None:
    escaped = re.escape(escape) if escape else "(?!)"
    said = [found.group() for found in re.finditer(f"{escaped}.?|.", pattern)]
    if escape and said and said[-1] == escape:
        with pytest.raises(ValueError, match="it ends with its escape character"):
            Pattern(pattern, escape)
        return
    expression = "".join(
        re.escape(each[1])
        if escape and each[0] == escape
        else {"%": ".*", "_": "."}.get(each, re.escape(each))
        for each in said
    )
    like = Pattern(pattern, escape)
    assert like.matches(text) == (re.fullmatch(expression, text) is not None)
    assert like.matches(text) == (re.fullmatch(like.regex(), text) is not None)


def test_like_takes_no_longer_for_a_pattern_that_could_be_tried_in_many_ways() -> None:
    """What goes back and tries again takes 5000 times as long with each %a, or for ever."""
    text = "a" * 5000
    assert not Pattern("%a" * 200 + "%b").matches(text)
    assert Pattern("%a_" * 100 + "%").matches(text)
