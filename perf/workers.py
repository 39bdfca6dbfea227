"""Run one worker in this process, or several in processes of their own; Ctrl-C ends the load, not the process."""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Final

from leveret.perf.conductor import Conductor
from leveret.perf.errors import REFUSED, PerfError
from leveret.perf.plan import Plan
from leveret.perf.worker import Order, Sample, Sight, Worker

END_S: Final = 30.0  # for a process to end


def run(plan: Plan, conductor: Conductor) -> list[Sight]:
    """Run a plan. Raises PerfError."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems refuse their own limit
        # a socket is a file; other processes inherit it
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with _interrupts(conductor.interrupt):
        return _alone(plan, conductor) if plan.processes == 1 else _together(plan, conductor)


def _alone(plan: Plan, conductor: Conductor) -> list[Sight]:
    worker = Worker(plan)
    try:
        worker.set_up()
        conductor.start(time.monotonic_ns())
        return [worker.run(conductor.take)]
    finally:
        worker.close()


@contextmanager
def _interrupts(interrupt: Callable[[], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: interrupt())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _together(plan: Plan, conductor: Conductor) -> list[Sight]:
    context = get_context("spawn")  # inherits nothing of ours: a thread of a test, a handler
    with ExitStack() as stack:
        pipes: list[Connection] = []
        for number in range(plan.processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(plan, number, theirs), daemon=True)
            process.start()
            theirs.close()
            stack.callback(process.join, END_S)
            stack.callback(process.terminate)
            stack.callback(ours.close)
            pipes.append(ours)
        for pipe in pipes:
            _heard(pipe)  # that it is ready
        conductor.start(time.monotonic_ns())
        for pipe in pipes:
            pipe.send(Order.GO)
        return _conduct(pipes, conductor)


def _conduct(pipes: list[Connection], conductor: Conductor) -> list[Sight]:
    sights: list[Sight] = []
    told = Order.GO
    while len(sights) < len(pipes):
        for pipe in wait(pipes):
            assert isinstance(pipe, Connection)
            answer = _heard(pipe)
            if isinstance(answer, Sight):
                sights.append(answer)
                continue
            assert isinstance(answer, Sample)
            order = conductor.take(answer)
            if order is not told:
                told = order
                for each in pipes:
                    each.send(order)
    return sights


def _heard(pipe: Connection) -> object:
    try:
        answer = pipe.recv()
    except EOFError:
        raise PerfError("a process of the load has ended early", REFUSED) from None
    if isinstance(answer, PerfError):
        raise answer
    return answer


def _work(plan: Plan, number: int, pipe: Connection) -> None:
    """Run a worker in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = Worker(plan, number)
    order = Order.GO

    def tick(sample: Sample) -> Order:
        nonlocal order
        pipe.send(sample)
        while pipe.poll():
            order = pipe.recv()
        return order

    try:
        worker.set_up()
        pipe.send("ready")
        pipe.recv()
        pipe.send(worker.run(tick))
        pipe.recv() if pipe.poll(END_S) else None  # until the other end is closed
    except PerfError as error:
        pipe.send(error)
    except EOFError:
        pass
    finally:
        worker.close()
