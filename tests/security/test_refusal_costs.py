"""A refused login costs as many hashes whoever it names, in every protocol, so that its time tells nothing."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

import pytest

from leveret.security import passwords, scram
from leveret.security.passwords import PasswordHash
from leveret.security.sasl import AuthenticationFailed, Challenge, Mechanisms
from leveret.security.users import User
from tests.harness.bench import ClientBench
from tests.harness.http import Line
from tests.harness.peer import ELSEWHERE
from tests.harness.threads import CHEAP

from .test_token_logins import HOSTS, in_010, in_091, in_091_as_table, in_10

Way = Callable[[ClientBench, str, str], object]
NAMES: Final = ("quick", "sha512", "nothing", "guest", "unknown", "")
SLOW: Final = ("slow", *NAMES)


def over_http(bench: ClientBench, password: str, name: str) -> object:
    line = Line(bench.broker, bench.config, ELSEWHERE)
    encoded = base64.b64encode(f"{name}:{password}".encode()).decode()
    line.send("GET", "/api/whoami", headers={"Host": "x.example", "Authorization": f"Basic {encoded}"})
    bench.settle()
    answer = line.answer()
    return None if answer.status == 401 else answer.status


WAYS: Final[tuple[Way, ...]] = (in_091, in_091_as_table, in_10, in_010, over_http)


def bench_of(has_slow: bool) -> ClientBench:
    """Users with a quick hash of either kind, without a password, of this machine only, and perhaps a slow hash."""
    bench = ClientBench(HOSTS)
    access = bench.broker.access
    access.hashing = passwords.Hashing(cost=CHEAP)
    access.add_user("quick", "sesame", ["management"])
    sha512 = PasswordHash.of("sesame", bytes(4), "rabbit_password_hashing_sha512")
    access.put_user(User("sha512", ["management"], sha512))
    access.add_user("nothing", None, ["management"])
    access.add_user("guest", "sesame", ["management"])
    if has_slow:
        access.put_user(User("slow", ["management"], PasswordHash.argon2id("sesame", CHEAP)))
    return bench


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("has_slow", [False, True])
def test_a_wrong_password_costs_as_many_hashes_whoever_is_named(
    way: Way, has_slow: bool, monkeypatch: pytest.MonkeyPatch
):
    calls: list[str] = []
    quick, slow = passwords.digest, passwords._verified
    monkeypatch.setattr(passwords, "digest", lambda *given: calls.append("quick") or quick(*given))
    monkeypatch.setattr(passwords, "_verified", lambda *given: calls.append("slow") or slow(*given))

    def cost(name: str) -> tuple[int, int]:
        calls.clear()
        assert way(bench, "wrong", name) is None
        return calls.count("slow"), calls.count("quick")

    bench = bench_of(has_slow)
    costs = {name: cost(name) for name in (SLOW if has_slow else NAMES)}
    assert {slow for slow, _ in costs.values()} == {int(has_slow)}, costs
    assert all(quick <= 1 for _, quick in costs.values()), (
        costs
    )  # a microsecond, beside a quarter of a second
    if not has_slow:
        assert {quick for _, quick in costs.values()} == {1}, costs


def test_a_wrong_proof_of_scram_costs_as_many_hashes_whoever_is_named(monkeypatch: pytest.MonkeyPatch):
    bench = bench_of(True)
    access = bench.broker.access
    access.hashing = passwords.Hashing(cost=CHEAP, scram_iterations=scram.ITERATIONS_MIN)
    access.add_user("verified", "sesame")
    calls: list[str] = []
    digest = scram.hmac.digest

    def counted(*given: object) -> bytes:
        calls.append("hmac")
        return digest(*given)  # type: ignore[arg-type]

    def cost(name: str) -> int:
        attempt = Mechanisms(access, ["SCRAM-SHA-256"]).begin("SCRAM-SHA-256", False)
        asked = attempt.start(f"n,,n={name},r=client".encode())
        assert isinstance(asked, Challenge)
        nonce = asked.octets.split(b",")[0]
        calls.clear()
        monkeypatch.setattr(scram.hmac, "digest", counted)
        with pytest.raises(AuthenticationFailed):
            attempt.step(b"c=biws,%b,p=%b" % (nonce, base64.b64encode(bytes(32))))
        monkeypatch.undo()
        return len(calls)

    costs = {name: cost(name) for name in ("verified", "slow", "quick", "nothing", "unknown")}
    assert set(costs.values()) == {1}, costs
