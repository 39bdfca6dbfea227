"""Archives without Spark, each run in a process of its own that is killed at one of its steps.

    python -m tests.pipeline.archiver http://127.0.0.1:15672 FOLDER      then lines such as: stream 17 on, queue 5 s3

`on` is a run that goes on with what comes, until it is killed; `s3`, `iceberg` and `rest` are other kinds of tables,
of which the last are in the catalogue of pyiceberg's configuration.

A step is a request to the broker, or a file that is opened for writing, linked or removed; with decoded bodies in an
Iceberg table also a file or a commit of pyiceberg. What libraries in C do for the other kinds of tables cannot be seen
here: there it is a time, in hundredths of a second. The process that reads the lines has loaded everything and run
nothing; it forks for each run.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from leveret.pipeline.decoding.decode_options import DecodeOptions
from leveret.pipeline.jobs.archive import DELTA, ICEBERG, Target
from leveret.pipeline.jobs.archive_columns import columns
from leveret.pipeline.jobs.archive_local import LocalArchive, iceberg_archive, local_archive
from leveret.pipeline.jobs.checkpoints import QueryCheckpoint
from leveret.pipeline.jobs.data_files import Layout
from leveret.pipeline.jobs.decoding import decoding_of
from leveret.pipeline.jobs.run import Report, Stop
from leveret.pipeline.jobs.table_positions import TableCheckpoint
from leveret.pipeline.options import Options, Use, read_options
from tests.pipeline.object_store import BUCKET

NAME: Final = "lakehouse"  # of a catalogue, in pyiceberg's configuration
BATCH: Final = 100  # messages
BY: Final = ("day", "hour")
SOURCES: Final = {
    "stream": {"subscribe": "lake-events", "startingOffsets": "earliest"},
    "queue": {"subscribe": "for-lake", "readerName": "lake"},
}
DECODED: Final = "decoded"  # that stream, with decoded bodies; the folder's file `schema` has the columns
ON: Final = "on"
EVERY_S: Final = 0.02  # between micro-batches of a run that goes on
# Of the other kinds of tables, which have a queue and a reader of their own.
OTHERS: Final[Mapping[str, Callable[[str], Mapping[str, str]]]] = {
    "stream": lambda kind: {},
    "queue": lambda kind: {"subscribe": f"for-{kind}", "readerName": kind},
}
S3: Final = "s3"
REST: Final = "rest"
STEP: Final = "tests.step"  # an audit event
HUNDREDTH_S: Final = 0.01
KILLED, DONE, FAILED = "killed", "done", "failed"


def table_of(folder: Path, source: str) -> Path:
    return folder / f"{source}-lake"


def archive(endpoint: str, folder: Path, source: str, goes_on: bool, kind: str = DELTA) -> None:
    """Archive what there is, or also what comes."""
    given = {
        "endpoints": endpoint,
        "maxOffsetsPerTrigger": str(BATCH),
        "minPartitions": "2",
        "retrySeconds": "20",
    }
    reading = SOURCES["stream" if source == DECODED else source]
    reading = reading if kind == DELTA or source == DECODED else {**reading, **OTHERS[source](kind)}
    options = read_options({**given, **reading}, Use.STREAM)
    with begun(options, folder, source, kind) as run:
        run.agree()
        report = Report("archive", lambda line: None)
        if goes_on:
            run.run_on(report, Stop(), EVERY_S)
        else:
            run.run(report, Stop())


def begun(options: Options, folder: Path, source: str, kind: str) -> AbstractContextManager[LocalArchive]:
    if kind in (ICEBERG, REST):
        target = Target(str(iceberg_of(folder, source)), ICEBERG, BY[:1])
        if kind == REST:
            target = Target(rest_of(source), ICEBERG, BY[:1], catalogue=NAME)
        how = decoding_of(target, options, by_schema(folder)) if source == DECODED else None
        return iceberg_archive(options, target, list(options.subscribe or ()), decoding=how)
    if kind == S3:
        layout = Layout(s3_of(source), BY, columns(options, BY))
        return local_archive(options, layout, TableCheckpoint(s3_of(source), list(options.subscribe or ())))
    where, checkpoint = str(table_of(folder, source)), QueryCheckpoint(folder / f"{source}-lake.checkpoint")
    if source == DECODED:
        decoding = decoding_of(Target(where, by=BY), options, by_schema(folder))
        return local_archive(options, decoding.layout, checkpoint, decoding=decoding)
    return local_archive(options, Layout(where, BY, columns(options, BY)), checkpoint)


def by_schema(folder: Path) -> DecodeOptions:
    return DecodeOptions("json", str(folder / "schema"))


def iceberg_of(folder: Path, source: str) -> Path:
    return folder / f"{source}-iceberg"


def rest_of(source: str) -> str:
    return f"lakes.{source}"


def s3_of(source: str) -> str:
    return f"s3://{BUCKET}/{source}"


def die_after(seconds: float) -> None:
    """Have this process killed after a time."""

    def kill() -> None:
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()


def die_at(step: int, folder: Path) -> None:
    """Have this process killed when it takes the step; 0: never."""
    left = step

    def on_event(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if not is_step(event, arguments, str(folder)):
            return
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(on_event)


def load_delta() -> None:
    """Have runs begin with what they would load, pandas for pyarrow, which takes half a second."""
    import encodings.idna  # noqa: F401

    import deltalake  # noqa: F401
    import pandas  # noqa: F401

    import leveret.pipeline.jobs.delta_paired_table  # noqa: F401


def load_iceberg() -> None:
    """Have runs begin with pyiceberg loaded, which takes a second."""
    import pyiceberg.catalog.rest
    import pyiceberg.catalog.sql
    import pyiceberg.io.pyarrow
    import pyiceberg.table  # noqa: F401


def tell_of_iceberg() -> None:
    """Have the files and commits of pyiceberg be steps; behind a commit is a file of the next one, or a request."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.io.pyarrow import PyArrowFile

    for owner, name in ((SqlCatalog, "commit_table"), (PyArrowFile, "create")):
        setattr(owner, name, in_steps(getattr(owner, name)))


def in_steps(known: Callable[..., object]) -> Callable[..., object]:
    def called(*given: object, **named: object) -> object:
        sys.audit(STEP)
        return known(*given, **named)

    return called


def is_step(event: str, arguments: tuple[object, ...], folder: str) -> bool:
    if event in ("http.client.send", STEP):
        return True
    if event in ("os.link", "os.remove"):
        return str(arguments[0]).startswith(folder)
    if event == "open":
        path, _, flags = arguments
        return str(path).startswith(folder) and bool(int(str(flags)) & (os.O_WRONLY | os.O_RDWR))
    return False


def main() -> None:
    endpoint, folder = sys.argv[1], Path(sys.argv[2])
    for line in sys.stdin:
        source, step, *how = line.split()
        kind = next((each for each in how if each != ON), DELTA)
        if kind in (ICEBERG, REST):
            load_iceberg()
        else:
            load_delta()
        child = os.fork()
        if not child:
            if source == DECODED and kind == ICEBERG:
                tell_of_iceberg()
            if kind == DELTA or source == DECODED:
                die_at(int(step), folder)
            elif int(step):
                die_after(int(step) * HUNDREDTH_S)
            try:
                archive(endpoint, folder, source, ON in how, kind)
            except Exception as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(KILLED if os.WIFSIGNALED(status) else FAILED if status else DONE, flush=True)


if __name__ == "__main__":
    main()
