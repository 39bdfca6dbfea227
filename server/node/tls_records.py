"""Decrypt all records that have come, which is most of what TLS costs where they are small."""

from __future__ import annotations

import ssl
from typing import Final

RECORD_MAX: Final = 16_384  # clear bytes of one record (RFC 8446, section 5.1), and so of one read
SMALL: Final = 1024  # clear bytes that most records do not exceed: to allocate for a large one takes longer


def decrypted(
    tls: ssl.SSLObject, incoming: ssl.MemoryBIO, size: int
) -> tuple[bytes, ssl.SSLError | None, bool]:
    """Return the bytes of all whole records, at most `size`, what has failed then, and whether nothing follows.

    `SSLObject.read` returns one record, however many there are. A peer that ends without close_notify, or with it, has
    not failed.
    """
    pieces: list[bytes] = []
    read, pending = tls.read, tls.pending
    failure: ssl.SSLError | None = None
    asked = SMALL  # it allocates what it is asked for
    while size > 0:
        try:
            piece = read(min(size, asked))
        except ssl.SSLWantReadError:
            break
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return b"".join(pieces), None, True
        except ssl.SSLError as error:
            failure = error
            break
        got = len(piece)
        if not got:
            return b"".join(pieces), None, True
        size -= got
        pieces.append(piece)
        asked = SMALL if got < SMALL else RECORD_MAX
        if not incoming.pending and not pending():  # learning it from an exception costs 2 us
            break
    return pieces[0] if len(pieces) == 1 else b"".join(pieces), failure, False
