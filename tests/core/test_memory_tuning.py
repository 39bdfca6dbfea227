"""What CPython's allocator keeps after a long queue has gone, and the next messages use."""

from __future__ import annotations

from leveret.memory_tuning import reusable_octets

OCTETS = 400  # of an object; one of a thousand stays


def test_memory_between_a_few_objects_that_stay_is_reusable():
    before = reusable_octets()
    objects = [bytes(OCTETS) for _ in range(50_000)]
    full = reusable_octets()
    few = objects[::1000]
    del objects
    kept = reusable_octets()
    again = [bytes(OCTETS) for _ in range(50_000)]
    assert kept - full > 0.9 * 50_000 * OCTETS
    assert kept - reusable_octets() > 0.9 * 50_000 * OCTETS
    assert before >= 0
    del few, again
