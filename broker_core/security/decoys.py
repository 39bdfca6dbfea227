"""Verifiers of SCRAM for users that do not exist, or have none: a client cannot tell them from those of users.

The salt of a name is the same one each time. The number of iterations is one that verifiers of users have, in the same
shares, since verifiers keep theirs when the setting changes; without any it is the setting's.
"""

from __future__ import annotations

import hmac
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from leveret.security.scram import HASH, Verifier

if TYPE_CHECKING:
    from leveret.security.passwords import PasswordHash

DRAW_BITS: Final = 64


class Decoys:
    """The verifiers of unknown users."""

    def __init__(self, key: bytes) -> None:
        """`key` derives what names get, and stays secret."""
        self._key = key
        self._users: Counter[int] = Counter()  # by the iterations of their verifiers

    def count(self, password: PasswordHash | None, change: int) -> None:
        """Count the verifier of a user that has come (1) or gone (-1)."""
        if password is None or password.scram is None:
            return
        iterations = password.scram.iterations
        self._users[iterations] += change
        if not self._users[iterations]:
            del self._users[iterations]

    def verifier(self, name: str, iterations: int) -> Verifier:
        """Return the verifier of an unknown user; `iterations` is that of new ones. No proof is right."""
        return Verifier.nobodys(name, self._key, self._iterations(name) or iterations)

    def _iterations(self, name: str) -> int:
        """Draw a number of iterations, always in the same way for a name; 0 if no user has a verifier."""
        drawn = hmac.digest(self._key, b"iterations " + name.encode("utf-8", "surrogatepass"), HASH)
        place = int.from_bytes(drawn[: DRAW_BITS // 8]) * self._users.total() >> DRAW_BITS
        kinds = sorted(self._users)
        ends = accumulate(self._users[each] for each in kinds)
        return next((each for each, end in zip(kinds, ends, strict=True) if place < end), 0)
