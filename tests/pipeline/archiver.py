"""Archives without Spark, each run in a process of its own that is killed at one of its steps.

    python -m tests.pipeline.archiver http://127.0.0.1:15672 FOLDER      then lines such as: stream 17 on

`on` is a run that goes on with what comes, until it is killed.

A step is a request to the broker, or a file that is opened for writing, linked or removed. The process that reads the
lines has loaded everything and run nothing; it forks for each run.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Final

from leveret.pipeline.decoding.decode_options import DecodeOptions
from leveret.pipeline.jobs.archive import Target
from leveret.pipeline.jobs.archive_columns import columns
from leveret.pipeline.jobs.archive_local import local_archive
from leveret.pipeline.jobs.checkpoints import QueryCheckpoint
from leveret.pipeline.jobs.data_files import Layout
from leveret.pipeline.jobs.decoding import decoding_of
from leveret.pipeline.jobs.run import Report, Stop
from leveret.pipeline.options import Use, read_options

BATCH: Final = 100  # messages
BY: Final = ("day", "hour")
SOURCES: Final = {
    "stream": {"subscribe": "lake-events", "startingOffsets": "earliest"},
    "queue": {"subscribe": "for-lake", "readerName": "lake"},
    "decoded": {"subscribe": "lake-events", "startingOffsets": "earliest"},
}
DECODED: Final = "decoded"  # whose bodies are decoded, by the columns in the file `schema` of the folder
ON: Final = "on"
EVERY_S: Final = 0.02  # between micro-batches of a run that goes on
KILLED, DONE, FAILED = "killed", "done", "failed"


def table_of(folder: Path, source: str) -> Path:
    return folder / f"{source}-lake"


def archive(endpoint: str, folder: Path, source: str, goes_on: bool) -> None:
    """Archive what there is, or also what comes."""
    where = table_of(folder, source)
    given = {
        "endpoints": endpoint,
        "maxOffsetsPerTrigger": str(BATCH),
        "minPartitions": "2",
        "retrySeconds": "20",
    }
    options = read_options({**given, **SOURCES[source]}, Use.STREAM)
    decoding = None
    if source == DECODED:
        how = DecodeOptions("json", str(folder / "schema"))
        decoding = decoding_of(Target(str(where), by=BY), options, how)
    layout = Layout(str(where), BY, columns(options, BY)) if decoding is None else decoding.layout
    checkpoint = QueryCheckpoint(folder / f"{source}-lake.checkpoint")
    with local_archive(options, layout, checkpoint, decoding=decoding) as run:
        run.agree()
        report = Report("archive", lambda line: None)
        if goes_on:
            run.run_on(report, Stop(), EVERY_S)
        else:
            run.run(report, Stop())


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


def is_step(event: str, arguments: tuple[object, ...], folder: str) -> bool:
    if event == "http.client.send":
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
        child = os.fork()
        if not child:
            die_at(int(step), folder)
            try:
                archive(endpoint, folder, source, how == [ON])
            except Exception as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(KILLED if os.WIFSIGNALED(status) else FAILED if status else DONE, flush=True)


if __name__ == "__main__":
    main()
