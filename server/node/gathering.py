"""Decide how to wait for the next input: asleep, awake, or after a pause, so that more comes with one read.

A client that writes each message by itself is read from once for each as long as the node is quicker than the client,
and a round of reading, confirming and delivering costs more than the messages in it. A pause of 0.1 ms gathers a few.
It is no use to a client that waits for its answer, nor where the node has time: so it is tried where rounds take most
of the time, and kept as long as a round brings more and the bytes in a second do not become fewer.

A client that waits for its answer, or answers what another waits for, writes again soon. To sleep so long costs as much
again until the processor has woken up, and keeps both ends waiting: so the node stays awake, and asks again and again
whether something has come. It is tried where rounds follow one another closely, and kept if there are more bytes in a
second: until there are fewer than the node had read asleep, or nothing came a few times in a row.

    looks ── rounds without a pause ──> tries ── rounds with one ──> gathers, if that was better ──> looks ...
      │                                   └── otherwise ─┐
      └── the node has time ─────────────────────────────┴──> tries awake ──> awake, if that was better ──> looks ...
                                                               └── otherwise ──> rests, longer each time ──> looks ...
"""

from __future__ import annotations

from enum import Enum
from typing import Final

PAUSE_S: Final = 0.00005  # to which the system adds as much
SAMPLE: Final = 64  # rounds that are compared with as many
GLANCE: Final = 4  # rounds with a pause that show already that nothing comes of it
GATHERING: Final = 2048  # rounds with a pause, or awake, until it is tried again whether that is still of use
REST_MIN: Final = 512  # rounds without a pause after it was of no use
REST_MAX: Final = 16_384
BUSY: Final = 0.5  # the part of the time that rounds take besides waiting; below it there is nothing to win
LARGE: Final = 8192  # bytes in a round: enough have come together already
GROWTH: Final = 1.5  # how much more a round with a pause has to bring
SLOWDOWN: Final = 0.9  # of the bytes in a second, which vary
SPIN_S: Final = 0.002  # the most awake for one input, and between rounds, on average, for that to be tried
VAIN: Final = 8  # times in a row that nothing came while the node was awake
SPEEDUP: Final = 1.1  # of the bytes in a second that are worth a processor's time
SLOW_SPEEDUP: Final = 1.3  # the same for few rounds: on average, `SLOW_S` or more lie between them
SLOW_S: Final = 0.0002
STILL: Final = 0.8  # of the bytes in a second read asleep, below which clients have changed, and it is over


class Phase(Enum):
    """The purpose of the next rounds."""

    LOOKING = "looking"
    TRYING = "trying"
    GATHERING = "gathering"
    TRYING_AWAKE = "trying awake"
    AWAKE = "awake"
    RESTING = "resting"


PHASE_RESTING: Final = Phase.RESTING
PHASE_TRYING: Final = Phase.TRYING
PHASE_GATHERING: Final = Phase.GATHERING
PHASE_TRYING_AWAKE: Final = Phase.TRYING_AWAKE
PHASE_AWAKE: Final = Phase.AWAKE
PHASE_LOOKING: Final = Phase.LOOKING


class Gathering:
    """Tells before each round whether to pause or to stay awake, and learns from what each round has brought."""

    __slots__ = (
        "_busy_s",
        "_octets",
        "_plain_octets",
        "_plain_s",
        "_rest",
        "_rounds",
        "_since",
        "_vain",
        "_wakes",
        "phase",
    )

    def __init__(self, wakes: bool = False) -> None:
        """`wakes`: staying awake is possible, because clients have another processor."""
        self._wakes = wakes
        self.phase = PHASE_RESTING
        self._rest = REST_MIN
        self._rounds = 0  # of this phase
        self._octets = 0  # read in these
        self._busy_s = 0.0  # what these took
        self._since = 0.0  # monotonic seconds: when the phase began
        self._plain_octets = 0  # of the last sample without a pause
        self._plain_s = 0.0
        self._vain = 0  # rounds in a row that brought nothing

    @property
    def pauses(self) -> bool:
        """Return whether to pause before the next round."""
        return self.phase is PHASE_TRYING or self.phase is PHASE_GATHERING

    @property
    def is_awake(self) -> bool:
        """Return whether to ask for input again and again, for `SPIN_S` at most, instead of sleeping."""
        return self.phase is PHASE_TRYING_AWAKE or self.phase is PHASE_AWAKE

    @property
    def measures(self) -> bool:
        """Return whether it has to be told how long the next round takes."""
        return self.phase is PHASE_LOOKING

    def heard(self, octets: int, now: float, took_s: float = 0.0) -> None:
        """Note what a round has brought, at its end in monotonic seconds, and how long it took."""
        self._rounds += 1
        self._octets += octets
        self._vain = 0 if octets else self._vain + 1
        self._busy_s += took_s
        if self.phase is PHASE_LOOKING:
            self._look(now)
        elif self.phase is PHASE_TRYING:
            self._try(now)
        elif self.phase is PHASE_TRYING_AWAKE:
            self._try_awake(now)
        elif self.phase is PHASE_AWAKE:
            self._stay_awake(now)
        elif self._rounds >= (self._rest if self.phase is PHASE_RESTING else GATHERING):
            self._begin(PHASE_LOOKING, now)

    def _look(self, now: float) -> None:
        if self._rounds < SAMPLE:
            return
        self._plain_octets, self._plain_s = self._octets, now - self._since
        if not 0 < self._octets < LARGE * SAMPLE:
            self._begin(PHASE_RESTING, now)
        elif self._busy_s >= BUSY * self._plain_s:
            self._begin(PHASE_TRYING, now)
        else:
            self._begin(PHASE_TRYING_AWAKE if self._is_quick() else PHASE_RESTING, now)

    def _try(self, now: float) -> None:
        wanted = GROWTH * self._plain_octets / SAMPLE * self._rounds
        if self._rounds == GLANCE and self._octets < wanted:
            self._give_up(now)
        elif self._rounds >= SAMPLE:
            if self._octets >= wanted and self._is_as_fast(SLOWDOWN, now):
                self._keep(PHASE_GATHERING, now)
            else:
                self._give_up(now)

    def _try_awake(self, now: float) -> None:
        if self._rounds < SAMPLE:
            return
        is_slow = self._plain_s >= SAMPLE * SLOW_S
        if self._is_as_fast(SLOW_SPEEDUP if is_slow else SPEEDUP, now):
            self._keep(PHASE_AWAKE, now)
        else:
            self._rest_longer(now)

    def _stay_awake(self, now: float) -> None:
        if self._rounds >= GATHERING or self._vain >= VAIN:
            self._begin(PHASE_LOOKING, now)
        elif self._rounds % SAMPLE == 0:
            if self._is_as_fast(STILL, now):
                self._octets, self._since = 0, now
            else:
                self._begin(PHASE_LOOKING, now)

    def _is_as_fast(self, share: float, now: float) -> bool:
        """Return whether this sample has so large a share of the bytes in a second of the one before it.

        The rates are compared multiplied by both times, which may be zero.
        """
        return self._octets * self._plain_s >= share * self._plain_octets * (now - self._since)

    def _keep(self, phase: Phase, now: float) -> None:
        self._rest = REST_MIN
        self._begin(phase, now)

    def _is_quick(self) -> bool:
        """Return whether rounds without a pause follow one another so closely that staying awake may be of use."""
        return self._wakes and self._plain_s < SAMPLE * SPIN_S

    def _give_up(self, now: float) -> None:
        """Go on after a pause was of no use."""
        if self._is_quick():
            self._begin(PHASE_TRYING_AWAKE, now)
        else:
            self._rest_longer(now)

    def _rest_longer(self, now: float) -> None:
        self._rest = min(2 * self._rest, REST_MAX)
        self._begin(PHASE_RESTING, now)

    def _begin(self, phase: Phase, now: float) -> None:
        self.phase = phase
        self._rounds = self._octets = self._vain = 0
        self._busy_s = 0.0
        self._since = now
