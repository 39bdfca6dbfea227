"""Numbers that know their width are numbers all the same."""

import pytest

from leveret.protocols.shared.codec import integers
from leveret.protocols.shared.codec.integers import Float32, Int8, Number, UInt64

WIDTHS = [each for each in vars(integers).values() if isinstance(each, type) and issubclass(each, Number)]


@pytest.mark.parametrize("width", WIDTHS)
def test_they_compare_hash_and_print_as_what_they_are(width: type[Number]):
    assert (width(5), hash(width(5)), str(width(5)), f"{width(5)}") == (5, hash(5), "5", "5")


@pytest.mark.parametrize("width", WIDTHS)
def test_their_width_is_seen_by_whom_it_concerns(width: type[Number]):
    assert repr(width(5)) == f"{width.__name__}(5)"
    assert not hasattr(width(5), "__dict__")


def test_a_float_does_so_too():
    assert (Float32(1.5), str(Float32(1.5)), repr(Float32(1.5))) == (1.5, "1.5", "Float32(1.5)")


def test_all_widths_are_here():
    assert len(WIDTHS) == 8
    assert {Int8, UInt64} < set(WIDTHS)
