"""Say of the Java process of a Spark session that it has ended: without that, an error is `Connection refused`."""

from __future__ import annotations

import logging
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol

from leveret.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S: Final = 2  # from a connection that breaks to the end of the process


class JavaEnded(PipelineError):  # noqa: N818 - a state of affairs
    """Raised when the Java process of Spark has ended before the job."""


class Process(Protocol):
    """The part of a `Popen` that is used here."""

    def wait(self, timeout: float) -> int: ...


def java_of(spark: SparkSession) -> Process | None:
    """Return the Java process that PySpark has started; None if it has started none."""
    gateway = getattr(spark.sparkContext, "_gateway", None)
    found: Process | None = getattr(gateway, "proc", None)
    return found


def keep_quiet(spark: SparkSession) -> None:
    """Have PySpark's server for accumulators print no stack when Java closes its connection by dying."""
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, address: None


@contextmanager
def java_named(java: Process | None, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Raise JavaEnded in place of what an error of the block says, if the process has ended."""
    try:
        yield
    except Exception as error:
        is_ours = isinstance(error, PipelineError)
        code = None if java is None or is_ours else _code_of(java, patience_s if _is_broken(error) else 0.0)
        if code is None:
            raise
        logging.getLogger().addHandler(
            logging.NullHandler()
        )  # py4j logs there what it cannot tell Java any more
        raise JavaEnded(f"{_how(code)}; the next run goes on at the checkpoint, if there is one") from error


def _is_broken(error: BaseException) -> bool:
    return isinstance(error, ConnectionError) or type(error).__module__.startswith("py4j.")


def _code_of(java: Process, patience_s: float) -> int | None:
    try:
        return java.wait(patience_s)
    except subprocess.TimeoutExpired:
        return None


def _how(code: int) -> str:
    if code == -signal.SIGKILL:
        return (
            "Spark's Java process was killed (SIGKILL), by the system if memory was short: --spark"
            " spark.driver.memory=... sets how much it may take"
        )
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    return f"Spark's Java process has ended {how}"


def stop_session(spark: SparkSession) -> None:
    """Stop a session, also one whose Java process has ended, which cannot be told to."""
    java = java_of(spark)
    if java is None or _code_of(java, 0.0) is None:
        spark.stop()
        return
    with suppress(Exception):
        spark.stop()
