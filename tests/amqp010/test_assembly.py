"""Frames to segments, every step there is: what may follow what on one track of one channel."""

from __future__ import annotations

import itertools

import pytest

from leveret.protocols.amqp010.machine.assembly import Assembly, FramingError

CONTROL, COMMAND, HEADER, BODY = range(4)
B, E, b, e = 8, 4, 2, 1


def take(assembly: Assembly, flags: int, of: int, octets: bytes = b"") -> bytes | None:
    return assembly.take(flags, of, b"<" + octets + b">", 1, 1 + len(octets))


def after(*frames: tuple[int, int]) -> Assembly:
    assembly = Assembly(1)
    for flags, of in frames:
        take(assembly, flags, of)
    return assembly


# What was taken, and every (flags, type) that may come then.
WHOLE_COMMAND = [(B | b | e | more, COMMAND) for more in (0, E)] + [
    (B | b | more, COMMAND) for more in (0, E)
]
WHOLE_CONTROL = [(flags, CONTROL) for flags, _ in WHOLE_COMMAND]
HEADER_BEGINS = [(b | end | more, HEADER) for end in (0, e) for more in (0, E)]
BODY_BEGINS = [(b | end | more, BODY) for end in (0, e) for more in (0, E)]
STATES = {
    "nothing": ((), WHOLE_COMMAND + WHOLE_CONTROL),
    "part of a command": (((B | b, COMMAND),), [(B, COMMAND), (B | e, COMMAND)]),
    "part of a lone command": (((B | E | b, COMMAND),), [(B | E, COMMAND), (B | E | e, COMMAND)]),
    "a command": (((B | b | e, COMMAND),), HEADER_BEGINS + BODY_BEGINS),
    "part of a header": (((B | b | e, COMMAND), (b, HEADER)), [(0, HEADER), (e, HEADER)]),
    "part of a last header": (((B | b | e, COMMAND), (E | b, HEADER)), [(E, HEADER), (E | e, HEADER)]),
    "a header": (((B | b | e, COMMAND), (b | e, HEADER)), BODY_BEGINS),
    "part of a body": (((B | b | e, COMMAND), (E | b, BODY)), [(E, BODY), (E | e, BODY)]),
    "a body": (((B | b | e, COMMAND), (b | e, BODY)), []),
    "part of a control": (((B | E | b, CONTROL),), [(B | E, CONTROL), (B | E | e, CONTROL)]),
}


@pytest.mark.parametrize("name", STATES)
def test_only_the_frames_that_may_follow_are_taken(name: str) -> None:
    """All 16 flags of all 4 types in every state."""
    frames, welcome = STATES[name]
    taken = []
    for flags, of in itertools.product(range(16), range(4)):
        try:
            take(after(*frames), flags, of)
        except FramingError:
            continue
        taken.append((flags, of))
    assert sorted(taken) == sorted(welcome)


def test_a_segment_is_handed_on_when_its_last_frame_has_come() -> None:
    assembly = Assembly(1)
    assert take(assembly, B | b, COMMAND, b"one") is None
    assert take(assembly, B, COMMAND, b"") is None
    assert take(assembly, B | e, COMMAND, b"two") == b"onetwo"
    assert take(assembly, b | e, HEADER, b"") == b""
    assert take(assembly, E | b | e, BODY, b"body") == b"body"


def test_what_is_passed_over_is_not_kept_but_still_has_to_fit() -> None:
    assembly = after((B | b | e, COMMAND))
    take(assembly, b, BODY, b"much")
    assembly.pass_over()
    assert not assembly.parts
    assert take(assembly, 0, BODY, b"more") is None
    assert not assembly.parts
    with pytest.raises(FramingError):
        take(assembly, b, BODY)
    assert take(assembly, e, BODY, b"end") == b""


def test_reset_is_as_new() -> None:
    assembly = after((B | b | e, COMMAND), (b, HEADER))
    assert not assembly.is_idle()
    assembly.pass_over()
    assembly.reset()
    assert assembly.is_idle()
    assert take(assembly, B | E | b | e, COMMAND, b"c") == b"c"


def test_a_framing_error_says_what_came_where() -> None:
    with pytest.raises(FramingError, match="a header without a command"):
        take(Assembly(1), b | e, HEADER)
    with pytest.raises(FramingError, match="a body begins while a header is open"):
        take(after((B | b | e, COMMAND), (b, HEADER)), b | e, BODY)
    with pytest.raises(FramingError, match="a frame goes on with a body that is not open"):
        take(after((B | b | e, COMMAND)), e, BODY)
