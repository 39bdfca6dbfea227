"""Every target on its samples, on what fuzzing has kept, and on inputs that chance made of them, the same each time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from leveret.protocols.amqp10.codec import reading as reading10
from leveret.protocols.amqp10.codec import writing as writing10
from tests.fuzz import __main__ as fuzz
from tests.fuzz import corpora, differential, targets
from tests.fuzz.mutator import mutated

TARGETS = {**targets.TARGETS, **differential.TARGETS}
QUICK, SLOW = 2000, 15  # inputs made by chance

each_target = pytest.mark.parametrize("name", TARGETS)


@each_target
def test_samples_and_what_fuzzing_has_kept_are_read_or_refused(name: str) -> None:
    target = TARGETS[name]
    kept = corpora.load(name)
    for octets in (*target.samples, *(kept[:: 1 + len(kept) // SLOW] if target.is_slow else kept)):
        target.run(octets)


@each_target
def test_what_chance_makes_of_them_is_read_or_refused(name: str) -> None:
    target = TARGETS[name]
    for octets in made(name, SLOW if target.is_slow else QUICK):
        target.run(octets)


def made(name: str, count: int) -> Iterator[bytes]:
    samples = [*TARGETS[name].samples, *corpora.load(name)]
    return islice(mutated(samples, Random(1)), count)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_samples_are_not_all_refused(name: str) -> None:
    """Else a target would look at refusals only."""
    assert TARGETS[name].samples or corpora.load(name)


# Planted mistakes are found.


def fault_in(name: str, count: int = QUICK) -> bool:
    for octets in made(name, count):
        try:
            TARGETS[name].run(octets)
        except Exception:
            return True
    return False


def test_a_number_that_is_written_as_another_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = writing10.encode
    monkeypatch.setattr(writing10, "encode", lambda value: encode(value).replace(b"\xff", b"\xfe"))
    assert fault_in("10-value")


def test_a_value_that_is_skipped_to_another_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    skip = reading10.skip_at
    monkeypatch.setattr(reading10, "skip_at", lambda data, at, end: skip(data, at, end) - (data[at] == 0xC0))
    assert fault_in("10-value")


def test_a_header_that_is_read_as_another_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = targets.header091
    monkeypatch.setattr(targets, "header091", lambda octets, name: read(octets, name) or None)
    assert fault_in("091-properties")


def test_an_error_in_other_words_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(text: str) -> None:
        raise KeyError(text)

    monkeypatch.setattr(targets.uri, "parse", parse)
    assert fault_in("uri")


# The command.


def test_a_fault_is_written_down_and_can_be_replayed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(octets: bytes) -> None:
        assert b"\xff" not in octets

    monkeypatch.setattr(fuzz, "ROOT", tmp_path)
    monkeypatch.setattr(fuzz, "FAULTS", tmp_path / "faults")
    monkeypatch.setitem(targets.TARGETS, "planted", targets.Target(run, (b"a",)))
    assert not fuzz.by_chance("planted", 60, 1)
    assert "planted: FAULT" in capsys.readouterr().out
    with pytest.raises(AssertionError):
        run((tmp_path / "faults" / "planted").read_bytes())


def test_a_corpus_keeps_what_is_small_and_new(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(corpora, "FOLDER", tmp_path / "corpora")
    assert corpora.keep("t", [b"bb", b"a", b"x" * (corpora.SIZE_MAX + 1)]) == 2
    assert corpora.keep("t", [b"a", b"ccc"]) == 1
    assert corpora.load("t") == [b"a", b"bb", b"ccc"]
    corpora.keep("t", [b"%d" % number for number in range(1000)])
    assert len(corpora.load("t")) == corpora.INPUTS_MAX


def test_the_same_seed_makes_the_same_inputs() -> None:
    first, second = (list(islice(mutated([b"abc", b"de"], Random(5)), 100)) for _ in range(2))
    assert first == second
