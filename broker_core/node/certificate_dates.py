"""Until when a certificate holds: PEM to a time. Of X.509 in DER (RFC 5280, section 4.1) no more is read than that."""

from __future__ import annotations

import ssl
from calendar import timegm
from collections.abc import Iterator
from pathlib import Path
from time import strptime
from typing import Final

BEGIN: Final = "-----BEGIN CERTIFICATE-----"
END: Final = "-----END CERTIFICATE-----"
VERSION: Final = 0xA0  # tags
UTC_TIME: Final = 0x17
GENERALIZED_TIME: Final = 0x18
CENTURY: Final = 50  # two digits below that are of the 21st century


def expires_at(pem: str) -> float:
    """Seconds since the epoch at which the first certificate of a file ends. Raises ValueError."""
    begin = pem.find(BEGIN)
    end = pem.find(END, begin)
    if begin < 0 or end < 0:
        raise ValueError("there is no certificate")
    certificate = values(ssl.PEM_cert_to_DER_cert(pem[begin : end + len(END)]))
    _, signed = next(values(next(certificate)[1]))
    fields = [each for each in values(signed) if each[0] != VERSION]
    if len(fields) < 4:
        raise ValueError("it is cut off")
    _, validity = fields[3]  # behind serial number, algorithm and issuer
    times = list(values(validity))
    if len(times) != 2:
        raise ValueError("it does not say until when it holds")
    return time_in(*times[1])


def values(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and contents of what stands one after the other. Raises ValueError."""
    at = 0
    while at < len(der):
        if at + 2 > len(der):
            raise ValueError("it is cut off")
        tag, size = der[at], der[at + 1]
        at += 2
        if size >= 0x80:
            octets = size & 0x7F
            size = int.from_bytes(der[at : at + octets])
            at += octets
        if at + size > len(der):
            raise ValueError("it is cut off")
        yield tag, der[at : at + size]
        at += size


def time_in(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == UTC_TIME:
        text = ("20" if int(text[:2]) < CENTURY else "19") + text
    elif tag != GENERALIZED_TIME:
        raise ValueError("it does not say until when it holds")
    return float(timegm(strptime(text, "%Y%m%d%H%M%SZ")))


def first_to_expire(paths: list[Path]) -> float | None:
    """When the first of several files' certificates ends; those that cannot be read say nothing."""
    found = []
    for path in paths:
        try:
            found.append(expires_at(path.read_text()))
        except (OSError, ValueError, StopIteration):
            continue
    return min(found, default=None)
