"""Conversion of nested values between protocols: an item without a type on the other side is left out."""

from collections.abc import Callable, Iterable
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def each_that_can(convert: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """Return the items converted, without those that raise ValueError."""
    found: list[B] = []
    for item in items:
        try:
            found.append(convert(item))
        except ValueError:
            continue
    return found
