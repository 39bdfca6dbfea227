"""Queries on a busy machine: what is started again, as `leveret pipeline` does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pipeline.jobs.run import LATE_WORKER

T = TypeVar("T")
STARTS_MAX = 6


def patiently(run: Callable[[], T]) -> T:
    """Return what a function returns that starts a query; call it again where Spark gave up on a Python worker that did
    not start within ten seconds. No micro-batch was planned then.
    """
    for _ in range(STARTS_MAX - 1):
        try:
            return run()
        except Exception as error:
            if LATE_WORKER not in str(error):
                raise
    return run()
