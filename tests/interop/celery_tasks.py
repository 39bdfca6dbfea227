"""The Celery application of test_celery.py; the environment tells the worker its broker and result backend."""

from __future__ import annotations

import os
import time

from celery import Celery, Task

app = Celery("leveret", broker=os.environ["TEST_BROKER"], backend=os.environ["TEST_BACKEND"])
app.conf.update(broker_connection_retry_on_startup=True, worker_prefetch_multiplier=1, task_acks_late=True)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
def wall_clock() -> float:
    return time.time()


@app.task(bind=True, max_retries=5)
def third_time_lucky(self: Task) -> int:
    """Fails twice; each retry is a message with an ETA."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.05)
    return int(self.request.retries)


@app.task
def fail(text: str) -> None:
    raise ValueError(text)
