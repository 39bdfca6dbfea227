"""The generated controls, commands and structs: octets to objects and back, and whether they are what the XML says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.sequences import SequenceSet
from leveret.protocols.amqp010.codec.spec import generate
from leveret.protocols.amqp010.codec.types import Array, MalformedError, Struct32, UInt8

from . import samples

EVERY_CLASS: list[type[c.Packed]] = [getattr(c, name) for name in samples.PACKED]
EVERY_COMMAND = [*c.COMMANDS.values()]
EVERY_CONTROL = [*c.CONTROLS.values()]
every_class = pytest.mark.parametrize("of", EVERY_CLASS, ids=lambda of: of.__name__)
every_struct = pytest.mark.parametrize(("struct", "octets"), samples.STRUCTS, ids=repr)


def test_the_committed_commands_are_what_the_specification_data_gives() -> None:
    assert generate.TARGET.read_text(encoding="utf-8") == generate.generate()
    assert generate.main(["--check"]) == 0


def test_every_class_is_registered_under_its_numbers() -> None:
    for known, count in ((c.CONTROLS, 25), (c.COMMANDS, 59), (c.STRUCTS, 14)):
        assert all(key == of.CLASS_CODE << 8 | of.CODE for key, of in known.items())
        assert len({of.NAME for of in known.values()}) == len(known) == count
    assert len(EVERY_CLASS) == 25 + 59 + 14 + 3  # and three structs that have no code


def test_the_constants_are_those_of_the_specification() -> None:
    assert c.MIN_MAX_FRAME_SIZE == 4096
    assert (c.CLOSE_CODE_FRAMING_ERROR, c.DETACH_CODE_UNKNOWN_IDS) == (501, 4)
    assert (c.ERROR_CODE_UNAUTHORIZED_ACCESS, c.ERROR_CODE_INVALID_ARGUMENT) == (403, 542)
    assert (c.ACCEPT_MODE_NONE, c.ACQUIRE_MODE_NOT_ACQUIRED, c.FLOW_MODE_WINDOW) == (1, 1, 1)
    assert (c.XA_STATUS_XA_OK, c.XA_STATUS_XA_RDONLY, c.RETURN_CODE_NO_CONSUMERS) == (0, 7, 313)


def test_commands_know_whether_they_have_results_and_content() -> None:
    results = {of.NAME for of in EVERY_COMMAND if of.HAS_RESULT}
    assert results == {
        *("message.acquire", "message.resume", "exchange.query", "exchange.bound", "queue.query"),
        *(
            "dtx.start",
            "dtx.end",
            "dtx.commit",
            "dtx.get-timeout",
            "dtx.prepare",
            "dtx.recover",
            "dtx.rollback",
        ),
    }
    content = {of.NAME for of in EVERY_COMMAND if of.HAS_CONTENT}
    assert content == {
        *("message.transfer", "file.stage", "file.return"),
        *("stream.publish", "stream.return", "stream.deliver"),
    }


@every_struct
def test_a_struct_is_encoded_and_decoded_as_the_sample_says(struct: c.Struct, octets: bytes) -> None:
    assert struct.encode() == octets
    data = b"front" + octets
    if isinstance(struct, c.CommandFragment):  # has neither size nor flags: it takes what is there
        assert struct.at(data, 5, len(data)) == (struct, len(data))
        return
    data += b"tail"
    assert type(struct).at(data, 5, len(data)) == (struct, 5 + len(octets))
    if struct.CODED:
        assert c.struct_at(data, 5, len(data)) == (struct, 5 + len(octets))


@every_struct
def test_a_struct_that_is_cut_anywhere_is_malformed(struct: c.Struct, octets: bytes) -> None:
    for end in range(len(octets)):
        with pytest.raises(MalformedError):
            type(struct).at(octets, 0, end)


def encoded(made: c.Packed) -> bytes:
    assert isinstance(made, c.Control | c.Command | c.Struct)
    return made.encode()


def decoded(of: type[c.Packed], octets: bytes, end: int) -> c.Packed:
    if issubclass(of, c.Command):
        return c.command_at(octets, 0, end)[0]
    if issubclass(of, c.Control):
        return c.control_at(octets, 0, end)
    assert issubclass(of, c.Struct)
    struct, at = of.at(octets, 0, end)
    assert at == end
    return struct


@every_class
def test_every_class_comes_back_from_its_octets_empty_and_filled(of: type[c.Packed]) -> None:
    for made in (of(), samples.filled(of))[of is c.CommandFragment :]:
        octets = encoded(made)
        assert decoded(of, octets, len(octets)) == made


@every_class
def test_a_class_that_is_cut_anywhere_is_malformed_and_names_itself(of: type[c.Packed]) -> None:
    octets = encoded(samples.filled(of))
    front = 4 if issubclass(of, c.Command) else 2
    for end in range(len(octets)):
        with pytest.raises(MalformedError) as caught:
            decoded(of, octets, end)
        if not issubclass(of, c.Struct):
            named = (of.CLASS_CODE, of.CODE) if end >= front else (0, 0)
            assert (caught.value.class_code, caught.value.code) == named


@given(st.data())
def test_whatever_is_in_its_fields_it_comes_back_from_its_octets(data: st.DataObject) -> None:
    of = data.draw(st.sampled_from(EVERY_CLASS))
    made = data.draw(samples.packed(of, absent=of is not c.CommandFragment))
    octets = encoded(made)
    assert decoded(of, octets, len(octets)) == made


@pytest.mark.parametrize("of", EVERY_COMMAND, ids=lambda of: of.NAME)
def test_a_command_says_whether_its_completion_is_asked_for(of: type[c.Command]) -> None:
    for sync in (False, True):
        octets = of().encode(sync)
        assert c.command_at(octets, 0, len(octets)) == (of(), sync)


@every_class
def test_flags_are_the_places_of_the_fields_that_are_there(of: type[c.Packed]) -> None:
    """Field i is bit i mod 8 of octet i div 8, least significant first, for every class there is."""
    pack = samples.PACKED[of.__name__].pack
    filled = samples.filled(of)
    for place, name in enumerate(of.FIELDS if pack else ()):
        made = of()
        setattr(made, name, getattr(filled, name))
        assert int.from_bytes(made.encode_fields()[:pack], "little") == 1 << place


def test_absent_fields_are_none_and_absent_bits_false() -> None:
    start_ok = c.control_at(bytes.fromhex("0102 0200 0141"), 0, 6)
    assert start_ok == c.ConnectionStartOk(mechanism="A")
    assert start_ok.fields() == {
        "client_properties": None,
        "mechanism": "A",
        "response": None,
        "locale": None,
    }
    assert c.MessageSubscribe().fields()["exclusive"] is False


def test_what_follows_the_last_field_is_passed_over() -> None:
    data = c.SessionAttach(b"s").encode() + b"tail"
    assert c.control_at(data, 0, len(data)) == c.SessionAttach(b"s")
    struct = bytes.fromhex("00000008 0601 0100 0007 ffff")
    assert c.struct_at(struct, 0, len(struct)) == (c.XaResult(7), len(struct))


def test_the_session_header_may_be_longer_than_we_know_or_empty() -> None:
    longer = bytes.fromhex("0408 03 01ffff 0100 0164")
    assert c.command_at(longer, 0, len(longer)) == (c.MessageCancel("d"), True)
    empty = bytes.fromhex("0408 00 0100 0164")
    assert c.command_at(empty, 0, len(empty)) == (c.MessageCancel("d"), False)
    with pytest.raises(MalformedError):
        c.command_at(bytes.fromhex("0408 07 000100 0164"), 0, 8)


@pytest.mark.parametrize("read", [c.command_at, c.control_at])
def test_a_command_that_no_table_has_says_its_numbers(read) -> None:
    with pytest.raises(c.UnknownCommand) as caught:
        read(bytes.fromhex("0b77 01 00 0000"), 0, 6)
    assert (caught.value.class_code, caught.value.code, caught.value.name) == (0x0B, 0x77, "0x0b.0x77")


def test_a_control_is_no_command_and_a_command_no_control() -> None:
    with pytest.raises(c.UnknownCommand):
        c.command_at(c.SessionAttach(b"abcd").encode(), 0, 10)
    with pytest.raises(c.UnknownCommand):
        c.control_at(c.MessageCancel("d").encode(), 0, 8)


def test_a_struct_that_no_table_has_is_kept() -> None:
    octets = bytes.fromhex("00000005 0777 0a0b0c")
    struct, at = c.struct_at(octets, 0, len(octets))
    assert (struct, at) == (Struct32(0x0777, b"\x0a\x0b\x0c"), len(octets))
    assert struct.encode() == octets


@pytest.mark.parametrize("octets", ["00000001 04", "00000000", "00000009 0401 0000", "000000"])
def test_a_struct_without_code_or_beyond_the_end_is_malformed(octets: str) -> None:
    data = bytes.fromhex(octets)
    with pytest.raises(MalformedError):
        c.struct_at(data + bytes(20), 0, len(data))


def test_a_struct_of_another_code_is_malformed_where_one_is_due() -> None:
    result = c.XaResult(1).encode()
    with pytest.raises(MalformedError):
        c.Xid.at(result, 0, len(result))
    start = bytes.fromhex("0602 01 00 0100") + result
    with pytest.raises(MalformedError) as caught:
        c.command_at(start, 0, len(start))
    assert caught.value.code == c.DtxStart.CODE


def test_an_array_of_something_else_is_malformed() -> None:
    start = bytes.fromhex("0101 0200 00000006 02 00000001 01")
    with pytest.raises(MalformedError):
        c.control_at(start, 0, len(start))
    recover = c.RecoverResult()
    recover.in_doubt = [c.XaResult(1)]
    octets = recover.encode()
    with pytest.raises(MalformedError):
        c.struct_at(octets, 0, len(octets))


@pytest.mark.parametrize(
    "octets",
    [
        pytest.param("0007 00000001 000000", id="half a range"),
        pytest.param("0004 00000001", id="half of two"),
        pytest.param("0010 00000001 00000002", id="beyond the end"),
        pytest.param("0008 00000002 00000001", id="inverted"),
        pytest.param("0010 00000005 00000006 00000001 00000002", id="descending"),
        pytest.param("0010 00000001 00000006 00000003 00000009", id="overlapping"),
    ],
)
def test_a_set_that_is_none_makes_a_command_malformed(octets: str) -> None:
    data = bytes.fromhex("0402 01 00 0100" + octets)
    with pytest.raises(MalformedError) as caught:
        c.command_at(data, 0, len(data))
    assert (caught.value.class_code, caught.value.code) == (4, 2)


def test_an_odd_or_inverted_byte_range_is_malformed() -> None:
    for octets in ("0008 0000000000000001", "0010 0000000000000002 0000000000000001"):
        data = bytes.fromhex("00000001" + octets)
        with pytest.raises(MalformedError):
            c.CommandFragment.at(data, 0, len(data))


@pytest.mark.parametrize(
    "made",
    [
        c.MessageCancel("x" * 256),
        c.ConnectionTune(65_536),
        c.SessionRequestTimeout(-1),
        c.SessionAttach(bytes(65_536)),
        c.SessionExpected(fragments=Array(0x95, [UInt8(1)])),
        c.ConnectionStart({"x" * 256: 1}),
    ],
    ids=repr,
)
def test_a_field_that_does_not_fit_is_a_value_error(made: c.Control | c.Command) -> None:
    with pytest.raises(ValueError, match=r"."):
        made.encode()


def test_a_secret_is_not_printed() -> None:
    start_ok = c.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest")
    assert "guest" not in repr(start_ok)
    assert repr(start_ok) == "ConnectionStartOk(client_properties={}, mechanism='PLAIN', response='***')"
    assert "guest" not in repr(c.ConnectionSecureOk(b"guest"))


def test_printed_is_what_is_there() -> None:
    assert repr(c.SessionDetached(b"s", 0)) == "SessionDetached(name=b's', code=0)"
    assert repr(c.SessionFlush(completed=True)) == "SessionFlush(completed=True)"
    said = c.MessageAccept(SequenceSet.of((0, 1)))
    assert said == c.MessageAccept(SequenceSet.of((0, 1)))
    assert said != c.MessageAcquire(SequenceSet.of((0, 1)))
    assert said != c.MessageAccept(SequenceSet.of((0, 2)))
