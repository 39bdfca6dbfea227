"""Until when certificates hold, read out of files as OpenSSL and others write them."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
import trustme

from leveret.server.node.tls import UTC_TIME, expires_at, first_to_expire, time_in


def pem(ends: datetime.datetime) -> str:
    return str(trustme.CA().issue_cert("localhost", not_after=ends).cert_chain_pems[0].bytes().decode())


@pytest.mark.parametrize("year", [2001, 2030, 2049, 2050, 2151])  # UTCTime ends with 2049
def test_the_end_of_a_certificate(year: int) -> None:
    ends = datetime.datetime(year, 6, 7, 8, 9, 10, tzinfo=datetime.UTC)
    assert expires_at(f"Subject: x\n{pem(ends)}\n{pem(ends.replace(year=2031))}") == ends.timestamp()


def test_what_is_no_certificate_says_nothing(tmp_path: Path) -> None:
    soon = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    good, late, bad = (tmp_path / name for name in ("good", "late", "bad"))
    good.write_text(pem(soon))
    late.write_text(pem(soon.replace(year=2031)))
    bad.write_text("-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n")
    assert first_to_expire([bad, tmp_path / "none", late, good]) == soon.timestamp()
    assert first_to_expire([bad, tmp_path / "none"]) is None


@pytest.mark.parametrize("octets", range(0, 400, 7))
def test_a_certificate_that_is_cut_off_is_an_error_and_nothing_else(octets: int) -> None:
    whole = ssl.PEM_cert_to_DER_cert(pem(datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)))
    with pytest.raises((ValueError, StopIteration)):
        expires_at(ssl.DER_cert_to_PEM_cert(whole[:octets]))


def test_two_digits_of_a_year_are_of_this_century_or_of_the_last() -> None:
    assert time_in(UTC_TIME, b"491231235959Z") == 2_524_607_999
    assert time_in(UTC_TIME, b"500101000000Z") == -631_152_000
