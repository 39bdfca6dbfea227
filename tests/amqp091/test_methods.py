"""The generated methods and properties: bytes to objects and back, and whether they are what the data says."""

import pika.spec  # type: ignore[import-untyped]
import pytest
from hypothesis import given

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.spec import generate
from leveret.protocols.amqp091.codec.wire import AmqpError, BasicProperties, MalformedError, Method, method_at

from . import samples

EVERY_METHOD = [*m.METHODS.values()]
# pika mixes up the arguments of that one
PIKAS = [of for of in EVERY_METHOD if of is not m.ConnectionUpdateSecret]


def filled(of: type[Method]) -> Method:
    """A method of the class with a value in every field that is not its default."""
    other = {bool: True, int: 77, str: "text", bytes: b"octets", dict: {"key": "value"}}
    method = of()
    for name, value in method.fields().items():
        setattr(method, name, other[type(value)])
    return method


def test_the_committed_methods_are_what_the_specification_data_gives() -> None:
    assert generate.TARGET.read_text(encoding="utf-8") == generate.generate()
    assert generate.main(["--check"]) == 0


def test_every_method_is_registered_under_its_numbers() -> None:
    assert all(key == of.class_id << 16 | of.method_id for key, of in m.METHODS.items())
    assert len({of.name for of in EVERY_METHOD}) == len(EVERY_METHOD) == 66


@pytest.mark.parametrize(
    ("method", "octets"), samples.METHODS, ids=lambda sample: getattr(sample, "name", "")
)
def test_a_method_is_encoded_and_decoded_as_the_sample_says(method: Method, octets: bytes) -> None:
    assert method.encode() == octets
    assert method_at(octets, 0, len(octets)) == method
    assert method_at(b"front" + octets + b"tail", 5, 5 + len(octets)) == method


@pytest.mark.parametrize("of", EVERY_METHOD, ids=lambda of: of.name)
def test_every_method_comes_back_from_its_bytes(of: type[Method]) -> None:
    for method in (of(), filled(of)):
        octets = method.encode()
        assert method_at(octets, 0, len(octets)) == method


@pytest.mark.parametrize("of", EVERY_METHOD, ids=lambda of: of.name)
def test_a_method_that_is_cut_anywhere_or_has_a_tail_is_malformed(of: type[Method]) -> None:
    octets = filled(of).encode()
    for end in range(len(octets)):
        with pytest.raises(MalformedError):
            method_at(octets, 0, end)
    with pytest.raises(MalformedError):
        method_at(octets + b"\0", 0, len(octets) + 1)


@pytest.mark.parametrize("of", PIKAS, ids=lambda of: of.name)
def test_another_implementation_reads_and_writes_the_same_bytes(of: type[Method]) -> None:
    theirs = pika.spec.methods[of.class_id << 16 | of.method_id]
    octets = filled(of).encode()
    assert octets[4:] == b"".join(theirs().decode(octets, 4).encode())


def test_an_unknown_method_is_x010_command_invalid() -> None:
    for octets in (b"\x00\x3c\x03\xe7", b"\x03\xe7\x00\x0a"):
        with pytest.raises(AmqpError) as raised:
            method_at(octets, 0, 4)
        assert (raised.value.code, raised.value.text) == (503, "unimplemented method")


def test_methods_are_equal_by_class_and_fields() -> None:
    assert m.QueuePurge("q") == m.QueuePurge("q") != m.QueuePurge("p")
    assert m.QueueBindOk() != m.QueueUnbindOk()
    assert m.QueueBindOk() != "queue.bind-ok"


def test_a_repr_shows_the_fields_but_no_secret() -> None:
    assert repr(m.ConnectionTuneOk(1, 2, 3)) == "ConnectionTuneOk(channel_max=1, frame_max=2, heartbeat=3)"
    for method in (
        m.ConnectionStartOk({}, "PLAIN", b"s3cret"),
        m.ConnectionSecureOk(b"s3cret"),
        m.ConnectionUpdateSecret(b"s3cret"),
    ):
        assert "s3cret" not in repr(method)
        assert "***" in repr(method)


def test_s026_the_codes_that_close_a_channel_and_those_that_close_the_connection() -> None:
    assert {311, 312, 313, 403, 404, 405, 406} == m.SOFT_ERRORS
    assert {320, 402, *range(501, 507), 530, 540, 541} == m.HARD_ERRORS
    assert m.REPLY_NAMES.keys() == m.SOFT_ERRORS | m.HARD_ERRORS
    assert m.REPLY_NAMES[312] == "NO_ROUTE"


def test_a_client_may_send_what_the_specification_lets_a_server_receive() -> None:
    allowed = {of.name for of in EVERY_METHOD if of.to_server}
    assert {"basic.publish", "basic.nack", "basic.cancel-ok", "channel.flow-ok", "access.request"} <= allowed
    assert not {"basic.deliver", "queue.declare-ok", "connection.start", "connection.blocked"} & allowed


@pytest.mark.parametrize(("properties", "octets"), samples.PROPERTIES)
def test_properties_are_encoded_and_decoded_as_the_sample_says(
    properties: BasicProperties, octets: bytes
) -> None:
    assert properties.encode() == octets
    assert BasicProperties.decode(octets) == properties
    for cut in range(len(octets)):
        with pytest.raises(MalformedError):
            BasicProperties.decode(octets[:cut])
    with pytest.raises(MalformedError):
        BasicProperties.decode(octets + b"\0")


@pytest.mark.parametrize("octets", [b"\x00\x01\x00\x00", b"\x00\x02", b"\xff\xff"])
def test_property_flags_that_basic_does_not_have_are_malformed(octets: bytes) -> None:
    with pytest.raises(MalformedError):
        BasicProperties.decode(octets)


@given(samples.properties)
def test_any_properties_come_back_from_their_bytes(properties: BasicProperties) -> None:
    assert BasicProperties.decode(properties.encode()) == properties


def test_properties_show_what_is_set() -> None:
    assert repr(BasicProperties(delivery_mode=2)) == "BasicProperties(delivery_mode=2)"
    assert BasicProperties() != "properties"
