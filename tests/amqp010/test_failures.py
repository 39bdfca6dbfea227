"""Every failure of the core has an error code, and its text is what the client reads."""

from __future__ import annotations

import pytest

from leveret import errors
from leveret.errors import Failure
from leveret.protocols.amqp010.broker.errors import CODES, refusal


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.NotFound, 404),
        (errors.AccessRefused, 403),
        (errors.Locked, 405),
        (errors.PreconditionFailed, 406),
        (errors.InvalidProperty, 406),
        (errors.TooMany, 506),
        (errors.NotAllowed, 530),
        (errors.LimitReached, 506),
        (errors.Unsupported, 540),
    ],
)
def test_a_failure_has_the_code_that_0_10_clients_know(kind: type[Failure], code: int) -> None:
    error = refusal(kind("no queue 'q'"))
    assert (error.code, error.description) == (code, "no queue 'q'")


def test_no_kind_of_failure_is_without_a_code() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Failure)]
    assert len(kinds) > 8
    for kind in kinds:
        assert kind is Failure or any(each in CODES for each in kind.__mro__)
