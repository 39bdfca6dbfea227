"""Nothing is lost, doubled or miscounted whatever arguments queues have together, and whoever uses them at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

import pytest

from leveret import broker as broker_module
from leveret.delivery import Delivery
from leveret.features.leases.lease import Lease
from leveret.features.xa import prepared
from leveret.queues.counted_queue import CountedQueue
from leveret.queues.message_groups import MessageGroupQueue
from tests.durable.paged import small_pages
from tests.harness.plain import plain_only

from .place import Place

STEPS = 400
SEEDS = range(1, 41)


@pytest.fixture(autouse=True)
def small_and_quiet() -> Iterator[None]:
    """Pages have three messages, and what the broker logs of its clients is not the point."""
    restore = small_pages()
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
    restore()


@pytest.mark.parametrize("first", range(4))
def test_nothing_is_lost_doubled_or_miscounted(first: int) -> None:
    for seed in SEEDS[first::4]:
        try:
            Place(seed).run(STEPS)
        except Exception as error:
            raise AssertionError(f"python -m tests.combined --seeds 1 --seed {seed}: {error!r}") from error


# Mistakes that are planted, and found.


def dead_letters_are_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(broker_module, "bury", lambda *_: None)


def what_is_accepted_stays_in_the_store(patch: pytest.MonkeyPatch) -> None:
    accept = CountedQueue.accept

    def kept(self: CountedQueue, delivery: Delivery) -> None:
        stored, delivery.stored = delivery.stored, 0
        accept(self, delivery)
        delivery.stored = stored

    patch.setattr(CountedQueue, "accept", kept)


def a_lease_gives_back_the_first_message_of_a_portion(patch: pytest.MonkeyPatch) -> None:
    put_back = Lease.put_back

    def first(self: Lease, portion: Sequence[Delivery]) -> None:
        put_back(self, portion[:1])

    patch.setattr(Lease, "put_back", first)


def a_group_is_held_by_what_was_prepared(patch: pytest.MonkeyPatch) -> None:
    stand_in = CountedQueue.stand_in

    def forgotten(self: CountedQueue, delivery: Delivery) -> Delivery:
        if isinstance(self, MessageGroupQueue):
            self._claims.pop(delivery.position, None)
        return stand_in(self, delivery)

    patch.setattr(CountedQueue, "stand_in", forgotten)


def what_a_branch_has_is_no_more_unsettled(patch: pytest.MonkeyPatch) -> None:
    def counted_off(self: prepared.Prepared) -> None:
        for delivery in self.branch.accepted:
            delivery.queue.unsettled -= 1
            delivery.queue.take_back(delivery)

    patch.setattr(prepared.Prepared, "put_back", counted_off)


# Seeds that find them. With other moves it is other seeds.
FOUND_BY: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    dead_letters_are_dropped: 1,
    what_is_accepted_stays_in_the_store: 1,
    a_lease_gives_back_the_first_message_of_a_portion: 50,
    a_group_is_held_by_what_was_prepared: 439,
    what_a_branch_has_is_no_more_unsettled: 8,
}


@plain_only
@pytest.mark.parametrize("plant", FOUND_BY, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        Place(FOUND_BY[plant]).run(STEPS)
