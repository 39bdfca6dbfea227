"""What is redacted is in no file: bodies, headers and properties of each protocol."""

from __future__ import annotations

from pathlib import Path
from zlib import decompress

import pytest

from leveret.durable.store.chunk import record_of
from leveret.features.recording.records import BLOCK, MAGIC, RecordKind
from leveret.features.recording.redaction import REDACTED, Redaction, digest, matching, read
from leveret.message import Encoding, Facts, Message
from leveret.protocols.amqp010.broker.encoding import ENCODING as ENCODING010
from leveret.protocols.amqp091.broker.encoding import ENCODING as ENCODING091
from leveret.protocols.amqp10.broker.encoding import ENCODING as ENCODING10
from leveret.protocols.amqp10.codec.values import Symbol
from leveret.protocols.amqp10.codec.writing import encode
from leveret.values import Properties
from tests.harness.bench import ClientBench

from .recorded import ENCODINGS, Recorded, records_of

EACH = pytest.mark.parametrize("encoding", [ENCODING091, ENCODING10, ENCODING010], ids=lambda each: each.name)


def secretive(encoding: Encoding, body: bytes = b"hush-body") -> Message:
    said = Properties(headers={"X-Auth-Token": "hush-header", "kind": "invoice"}, reply_to="hush-reply")
    facts = Facts(has_headers=True, user_id="guest", reply_to="hush-reply")
    return Message(encoding, "", "q", encoding.write(said), encoding.body(body), facts)


@EACH
def test_a_body_becomes_as_many_zeros(encoding: Encoding) -> None:
    redacted = Redaction(bodies=True).applied(secretive(encoding))
    assert encoding.octets(redacted.body) == bytes(9)
    assert encoding.headers(redacted.properties)["kind"] == "invoice"


@EACH
def test_headers_that_a_pattern_names_lose_their_values(encoding: Encoding) -> None:
    redacted = Redaction(headers=("*token*",)).applied(secretive(encoding))
    assert dict(encoding.headers(redacted.properties)) == {"X-Auth-Token": REDACTED, "kind": "invoice"}
    assert redacted.body == secretive(encoding).body


def test_what_other_protocols_cannot_express_is_not_overlooked() -> None:
    """A header whose value is no neutral one, in an annotation or in a large section, is left out with its section."""
    said = b"\0\x53\x72" + encode({Symbol("x-token"): {Symbol("deep"): "hush"}})
    message = Message(ENCODING10, "", "q", said, ENCODING10.body(b""), Facts(has_headers=True))
    assert b"hush" in record_of(Redaction(headers=("*other*",)).applied(message))
    assert b"hush" not in record_of(Redaction(headers=("*token*",)).applied(message))
    assert b"hush" not in record_of(Redaction(headers=("*",)).applied(message))


@EACH
def test_properties_that_a_pattern_names_are_absent(encoding: Encoding) -> None:
    redacted = Redaction(properties=("REPLY*", "user_id")).applied(secretive(encoding))
    assert encoding.read(redacted.properties).reply_to is None
    assert (redacted.facts.reply_to, redacted.facts.user_id) == (None, None)


@EACH
def test_the_file_holds_nothing_of_it(encoding: Encoding, tmp_path: Path) -> None:
    bench = ClientBench()
    bench.host.declare_queue("q")
    redaction = Redaction(True, ("*token*",), ("reply_to",))
    recorded = Recorded(bench.broker, tmp_path, redaction=redaction)
    bench.broker.publish(bench.host.default_exchange, secretive(encoding))
    bench.settle()
    path = recorded.end()
    octets, at = path.read_bytes(), len(MAGIC)
    while at < len(octets):
        _, size, _ = BLOCK.unpack_from(octets, at)
        assert b"hush" not in decompress(octets[at + BLOCK.size : at + BLOCK.size + size])
        at += BLOCK.size + size
    assert b"hush" not in octets
    [begin] = [each for each in records_of(path) if each.kind is RecordKind.BEGIN]
    assert begin.fields["redacted"] == redaction.to_json()


def test_a_message_whose_protocol_cannot_read_it_is_written_without_anything() -> None:
    """Nobody can tell that what is left is harmless."""
    message = Message(
        ENCODING091, "", "q", b"\xff\xff\xff", b"hush", Facts(has_headers=True, reply_to="hush")
    )
    redacted = Redaction(headers=("*",)).applied(message)
    assert (redacted.body, redacted.facts.reply_to) == (b"", None)
    assert b"hush" not in record_of(redacted)


def test_a_message_without_any_of_it_stays_the_same_object() -> None:
    message = Message(ENCODING091, "", "q", ENCODING091.write(Properties()), b"body")
    assert Redaction().applied(message) is message


def test_a_digest_tells_properties_from_bodies() -> None:
    one = Message(ENCODING091, "", "q", b"ab", b"c")
    assert digest(one) == digest(read(record_of(one), ENCODINGS.get))
    assert digest(one) != digest(Message(ENCODING091, "", "q", b"a", b"bc"))


def test_patterns_do_not_mind_capitals() -> None:
    assert matching(["Authorization", "kind", "x-TOKEN"], ["auth*", "*token"]) == ["Authorization", "x-TOKEN"]
