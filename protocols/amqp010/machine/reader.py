"""The hot path of AMQP 0-10 input: received bytes in, whole controls and commands out.

Nearly all traffic is transfers whose frames lie whole in one read: `_take_frames` handles one that comes alone in
straight code, and `_take_run` those that follow each other with the same command, which go on as a run. A transfer is
looked up by the bytes of its whole frame, and either its header and its body lie behind it, in a frame each, or its
channel is left expecting them. Every other frame goes to `_take_frame`, and a segment of several frames to the assembly
of its channel. Channels may interleave freely, and so may the two tracks of a channel.

Only a channel that carries a session may assemble commands. Controls may come on every channel, and the total size of
unfinished ones is bounded for all channels together. An incomplete frame at the end of a read is kept in the pieces it
came in and joined once.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from leveret.protocols.amqp010.codec.commands import (
    SEGMENT_TYPE_BODY,
    SEGMENT_TYPE_COMMAND,
    SEGMENT_TYPE_CONTROL,
    SEGMENT_TYPE_HEADER,
    TRACK_COMMAND,
    TRACK_CONTROL,
    Command,
    Control,
    MalformedError,
    MessageTransfer,
    command_at,
    control_at,
)
from leveret.protocols.amqp010.codec.frames import (
    COMMANDS,
    FIRST_COMMAND,
    FIRST_FRAME,
    FIRST_SEGMENT,
    FRAME_MAX,
    HEAD,
    HEAD_SIZE,
    KINDS,
    LAST_BODY,
    LAST_SEGMENT,
    LONE_COMMAND,
    LONE_CONTROL,
    MIDDLE_HEADER,
    PLACES,
)
from leveret.protocols.amqp010.machine.assembly import NAMES, WHICH, Assembly, FramingError
from leveret.protocols.shared.machine.connection_machine import ConnectionMachine
from leveret.protocols.shared.machine.contract import Writer
from leveret.protocols.shared.machine.states import AWAITING_HEADER

GREETING_SIZE: Final = 8
TRANSFER: Final = bytes((MessageTransfer.CLASS_CODE, MessageTransfer.CODE))

COMMAND_SIZE_MAX: Final = 128 << 10  # each byte may become fifty in a map, and maps of arguments are kept
HEADER_SIZE_MAX: Final = 1 << 20
INITIAL_SIZE_MAX: Final = 8192  # of a frame, and of all unfinished controls, before the connection is open
CONTROLS_SIZE_MAX: Final = 256 << 10  # of all unfinished controls
CONTROL_COST: Final = 512  # added for each unfinished control
# calls for a run, each of which may read all that is left, before that comes one by one
TRIES_MAX: Final = 2
TRANSFERS_MAX: Final = 64  # remembered by their frames
TRANSFER_SIZE_MAX: Final = 300  # of a remembered frame; one with the longest destination has 276


@mypyc_attr(allow_interpreted_subclasses=True)
class Reader(ConnectionMachine):
    """The frames of one connection. A subclass implements the callbacks."""

    __slots__ = (
        "_commands",
        "_controls",
        "_controls_max",
        "_controls_size",
        "_frame_size_max",
        "_greeted",
        "_lost",
        "_size_max",
        "_transferring",
        "_transfers",
        "_whole_max",
    )

    def __init__(self, body_size_max: int, outbox: Writer, now: float, handshake_timeout_s: float) -> None:
        super().__init__(AWAITING_HEADER, outbox, now, handshake_timeout_s)
        self._commands: dict[int, Assembly] = {}  # by place: channels that carry a session
        self._controls: dict[int, Assembly] = {}  # by channel: unfinished controls
        self._controls_size = 0
        self._controls_max = INITIAL_SIZE_MAX
        self._frame_size_max = INITIAL_SIZE_MAX
        self._transfers: dict[bytes, tuple[Command, bool]] = {}  # by their whole frames
        # The channel of the last transfer, if it is to begin with a command again.
        self._transferring: Assembly | None = None
        self._size_max = {
            SEGMENT_TYPE_COMMAND: COMMAND_SIZE_MAX,
            SEGMENT_TYPE_HEADER: HEADER_SIZE_MAX,
            SEGMENT_TYPE_BODY: body_size_max,
        }
        self._whole_max = HEAD_SIZE + min(body_size_max, FRAME_MAX)  # of the frame of a body
        self._greeted = False
        self.unfinished.bound(body_size_max)
        self._lost = False  # framing is broken: all further input is ignored
        self._needed = GREETING_SIZE

    @abstractmethod
    def _may_assemble(self, channel: int) -> bool:
        """Return whether commands are accepted on this channel."""

    @abstractmethod
    def _on_greeting(self, octets: bytes) -> bool:
        """Called with the first eight bytes; returns whether to go on."""

    @abstractmethod
    def _on_control(self, channel: int, control: Control) -> None:
        """Called with a whole control."""

    @abstractmethod
    def _on_command(
        self, channel: int, command: Command, sync: bool, header: bytes | None, body: bytes | None
    ) -> None:
        """Called with a whole command. A header or body that is None was absent. The command must not be changed: equal
        transfers may be the same object."""

    def _on_run(
        self, channel: int, transfer: MessageTransfer, headers: list[bytes], bodies: list[bytes]
    ) -> int:
        """Called with whole messages that one transfer without sync brought each. Return how many were taken.

        The effect is that of `_on_command` for each, from the first on, as long as each is simply taken. The others are
        left untouched, and come in `_on_command`.
        """
        return 0

    @abstractmethod
    def _on_begun(self, channel: int, transfer: MessageTransfer) -> None:
        """Called once with a transfer whose content has come in part. If it ends the session, the rest is passed
        over."""

    @abstractmethod
    def _on_malformed(self, channel: int, track: int, error: MalformedError) -> None:
        """Called for a command or control that is malformed, unknown, or without a session. Its rest is passed over."""

    @abstractmethod
    def _on_too_large(self, channel: int, of: int, size: int) -> None:
        """Called for a command with a segment of `size` bytes or more, which is too large. Its rest is passed over."""

    @abstractmethod
    def _on_too_many(self, channel: int) -> None:
        """Called for a command with which all that are unfinished are too large. Its rest is passed over."""

    @abstractmethod
    def _on_framing_error(self, why: str) -> None:
        """Called when the input cannot be divided into frames any more. Nothing more is read."""

    def _take(self, data: bytes) -> None:
        if self._lost:
            return
        self.halted = False
        if self._tail:
            data = self._joined(data)
            if not data:
                return
        at = 0
        if not self._greeted and len(data) >= GREETING_SIZE:
            self._greeted = True
            self._lost = not self._on_greeting(data[:GREETING_SIZE])
            self._needed = HEAD_SIZE
            at = GREETING_SIZE
        if self._greeted and not self._lost:
            self._needed = HEAD_SIZE
            at = self._take_frames(data, at)
        rest = data[at:]
        self._tail = [rest] if rest and not self._lost else []
        self._tail_size = len(rest)

    def _opened(self) -> None:
        """Raise the limits after the login: frames may have their full size, and more controls may be unfinished."""
        self._frame_size_max = FRAME_MAX
        self._controls_max = CONTROLS_SIZE_MAX

    def _forget(self, channel: int) -> None:
        """Drop the unfinished command of a channel that its session has left."""
        self.unfinished.remove(channel)
        if self._commands.pop(COMMANDS | channel, None) is self._transferring:
            self._transferring = None

    def _take_frames(self, data: bytes, at: int) -> int:
        """Handle every whole frame from `at` on, until halted; return where the first unhandled one begins."""
        end = len(data)
        unpack = HEAD.unpack_from
        while at + HEAD_SIZE <= end and not self.halted:
            assembly = self._transferring
            if assembly is not None and data.startswith(assembly.frame, at):
                at += len(assembly.frame)
            else:
                kind, size, place, _ = unpack(data, at)
                after = at + size
                if kind not in KINDS or size < HEAD_SIZE or place >= PLACES:
                    # the text is not quoted: it may be a password
                    self._lose("what follows does not begin as a frame does")
                    return end
                if size > self._frame_size_max:
                    self._lose(f"a frame has at most {INITIAL_SIZE_MAX} octets until the connection is open")
                    return end
                if after > end:
                    self._needed = size
                    return at
                assembly = self._commands.get(place) if kind == FIRST_COMMAND else None
                if assembly is None or not self._remember(assembly, data, at, after):
                    self._take_frame(kind, place, data, at + HEAD_SIZE, after)
                    self.halted = self.halted or self._is_enough()
                    at = after
                    continue
                at = after
            # A transfer on the channel of `assembly`. If its header and body follow in a frame each, hand it on.
            if at + HEAD_SIZE <= end:
                kind, size, place, _ = unpack(data, at)
                body_at = at + size
                if (
                    (kind == MIDDLE_HEADER and place == assembly.place)
                    and size >= HEAD_SIZE
                    and body_at + HEAD_SIZE <= end
                ):
                    kind, size, place, _ = unpack(data, body_at)
                    after = body_at + size
                    if (
                        kind == LAST_BODY and place == assembly.place and after <= end
                    ) and HEAD_SIZE <= size <= self._whole_max:
                        header = data[at + HEAD_SIZE : body_at]
                        body = data[body_at + HEAD_SIZE : after]
                        if data.startswith(assembly.frame, after):
                            at = self._take_run(assembly, data, at, after, header, body)
                            continue
                        at = after
                        self._on_command(
                            assembly.channel, assembly.transfer, assembly.transfer_sync, header, body
                        )
                        continue
            assembly.begin()
            self._transferring = None
        return at

    def _take_run(
        self, assembly: Assembly, data: bytes, at: int, after: int, header: bytes, body: bytes
    ) -> int:
        """Handle a transfer with its content in `data[at:after]`, and those behind it that have the same command, and
        header and body in a frame each, until halted or their session has ended; return the offset of the rest."""
        headers, bodies = [header], [body]
        ends = [at - len(assembly.frame), after]  # where the first begins, and where each ends
        self._contents(assembly, data, after, headers, bodies, ends)
        return ends[self._hand_over(assembly, headers, bodies)]

    def _contents(
        self,
        assembly: Assembly,
        data: bytes,
        at: int,
        headers: list[bytes],
        bodies: list[bytes],
        ends: list[int],
    ) -> None:
        """Append header, body and end of each whole transfer from `at` on that has the command of the last one."""
        end, unpack, frame = len(data), HEAD.unpack_from, assembly.frame
        while data.startswith(frame, at):
            header_at = at + len(frame)
            if header_at + HEAD_SIZE > end:
                break
            kind, size, place, _ = unpack(data, header_at)
            body_at: int = header_at + size
            if (
                kind != MIDDLE_HEADER
                or place != assembly.place
                or size < HEAD_SIZE
                or body_at + HEAD_SIZE > end
            ):
                break
            kind, size, place, _ = unpack(data, body_at)
            at = body_at + size
            if (
                kind != LAST_BODY
                or place != assembly.place
                or at > end
                or not HEAD_SIZE <= size <= self._whole_max
            ):
                break
            headers.append(data[header_at + HEAD_SIZE : body_at])
            bodies.append(data[body_at + HEAD_SIZE : at])
            ends.append(at)

    def _hand_over(self, assembly: Assembly, headers: list[bytes], bodies: list[bytes]) -> int:
        """Handle messages that one transfer brought each, until halted or its session has ended. Return how many."""
        channel, transfer, sync = assembly.channel, assembly.transfer, assembly.transfer_sync
        taken, tries, count = 0, 0 if sync else TRIES_MAX, len(headers)
        while taken < count and not self.halted and self._transferring is assembly:
            if tries and count - taken > 1 and isinstance(transfer, MessageTransfer):
                taken += self._on_run(channel, transfer, headers[taken:], bodies[taken:])
                tries -= 1
                if taken == count or self.halted:
                    break
            self._on_command(channel, transfer, sync, headers[taken], bodies[taken])
            taken += 1
        return taken

    def _remember(self, assembly: Assembly, data: bytes, at: int, after: int) -> bool:
        """Remember a frame that begins a transfer. Return False if it does not, or cannot be remembered."""
        if not assembly.is_idle() or not data.startswith(TRANSFER, at + HEAD_SIZE):
            return False
        if after - at > TRANSFER_SIZE_MAX:
            return False
        if not assembly.frame or not data.startswith(assembly.frame, at):
            frame = data[at:after]
            transfer = self._transfers.get(frame)
            if transfer is None:
                try:
                    transfer = command_at(frame, HEAD_SIZE, len(frame))
                except MalformedError:
                    return False  # `_take_frame` reports it
                if len(self._transfers) >= TRANSFERS_MAX:
                    self._transfers.clear()
                self._transfers[frame] = transfer
            assembly.frame = frame
            assembly.transfer, assembly.transfer_sync = transfer
        self._transferring = assembly
        return True

    def _take_frame(self, kind: int, place: int, data: bytes, at: int, end: int) -> None:
        """Handle one frame of any kind, with `data[at:end]` behind its head."""
        flags, of, channel = kind >> 8, kind & 0xFF, place & 0xFFFF
        try:
            if place >= COMMANDS:
                assembly = self._commands.get(place)
                if kind == LONE_COMMAND and assembly is not None and assembly.is_idle():
                    self._read_lone_command(channel, data, at, end)
                elif of == SEGMENT_TYPE_CONTROL:
                    raise FramingError("a control on the track of the commands")
                else:
                    self._take_command_frame(channel, flags, of, data, at, end)
            elif kind == LONE_CONTROL and channel not in self._controls:
                self._read_control(channel, data, at, end)
            elif of != SEGMENT_TYPE_CONTROL:
                raise FramingError(f"a {NAMES[of]} on the track of the controls")
            else:
                self._take_control_frame(channel, flags, data, at, end)
        except FramingError as error:
            self._lose(str(error))

    def _lose(self, why: str) -> None:
        self._lost = self.halted = True
        self._on_framing_error(why)

    # Controls.

    def _take_control_frame(self, channel: int, flags: int, data: bytes, at: int, end: int) -> None:
        """Handle a frame of a control that has several."""
        if flags & WHICH != WHICH:
            raise FramingError("a control is not all there is of it")
        assembly = self._controls.get(channel)
        if assembly is None:
            assembly = self._controls[channel] = Assembly(channel)
            self._controls_size += CONTROL_COST
        self._controls_size += end - at
        if self._controls_size > self._controls_max:
            raise FramingError(f"more than {self._controls_max} octets of unfinished controls")
        control = assembly.take(flags, SEGMENT_TYPE_CONTROL, data, at, end)
        if control is not None:
            del self._controls[channel]
            self._controls_size -= CONTROL_COST + len(control)
            self._read_control(channel, control, 0, len(control))

    def _read_control(self, channel: int, data: bytes, at: int, end: int) -> None:
        try:
            control = control_at(data, at, end)
        except MalformedError as error:
            self._on_malformed(channel, TRACK_CONTROL, error)
            return
        self._on_control(channel, control)

    # Commands.

    def _read_lone_command(self, channel: int, data: bytes, at: int, end: int) -> None:
        """Handle a command in a single frame, as nearly all are."""
        try:
            command, sync = command_at(data, at, end)
        except MalformedError as error:
            self._on_malformed(channel, TRACK_COMMAND, error)
            return
        self._on_command(channel, command, sync, None, None)

    def _take_command_frame(self, channel: int, flags: int, of: int, data: bytes, at: int, end: int) -> None:
        assembly = self._assembly(channel, flags)
        if assembly is None:
            return
        size = len(assembly.parts) + end - at
        segment = assembly.take(flags, of, data, at, end)
        if size > self._size_max[of] and not assembly.passing:
            self._pass_over(assembly)
            self._on_too_large(channel, of, size)
        if flags & LAST_SEGMENT == 0 or segment is None:
            self._keep_part(assembly, end - at)
        if segment is None:
            return
        if of == SEGMENT_TYPE_COMMAND:
            self._read_command(assembly, flags, segment)
        elif of == SEGMENT_TYPE_HEADER:
            assembly.header = segment
        else:
            assembly.body = segment
        if flags & LAST_SEGMENT:
            self._end(assembly)

    def _keep_part(self, assembly: Assembly, octets: int) -> None:
        """Count a frame of a command that is not whole, and check whether the rest of it is welcome."""
        if assembly.passing:
            return
        channel, command = assembly.channel, assembly.command
        if not self.unfinished.add(channel, octets, self._heartbeat.received_at):
            self._pass_over(assembly)
            self._on_too_many(channel)
        elif not assembly.begun and type(command) is MessageTransfer:
            assembly.begun = True
            self._on_begun(channel, command)

    def _pass_over(self, assembly: Assembly) -> None:
        assembly.pass_over()
        self.unfinished.remove(assembly.channel)

    def _assembly(self, channel: int, flags: int) -> Assembly | None:
        """Return the assembly of the channel; without a session, report the beginning of a command and return None."""
        place = COMMANDS | channel
        if not self._may_assemble(channel):
            self._forget(channel)
            if flags & FIRST_SEGMENT and flags & FIRST_FRAME:
                error = MalformedError("a command on a channel without a session")
                self._on_malformed(channel, TRACK_COMMAND, error)
            return None
        assembly = self._commands.get(place)
        if assembly is None:
            assembly = self._commands[place] = Assembly(channel)
        return assembly

    def _read_command(self, assembly: Assembly, flags: int, octets: bytes) -> None:
        if assembly.passing:
            return
        try:
            assembly.command, assembly.sync = command_at(octets, 0, len(octets))
            if not flags & LAST_SEGMENT:
                assembly.expect_content()
        except MalformedError as error:
            self._pass_over(assembly)
            self._on_malformed(assembly.channel, TRACK_COMMAND, error)

    def _end(self, assembly: Assembly) -> None:
        """Hand on the command after its last segment, unless it was passed over."""
        command, sync, header, body = assembly.command, assembly.sync, assembly.header, assembly.body
        assembly.reset()
        self.unfinished.remove(assembly.channel)
        if command is not None:
            self._on_command(assembly.channel, command, sync, header, body)
