"""Sort what `--option KEY=VALUE` gives a job: options of the connection, of the source, and of the sink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from leveret.pipeline import options, sink_options
from leveret.pipeline.errors import BadOption
from leveret.pipeline.jobs.endpoint import is_about_connection
from leveret.pipeline.option_hints import READING, WRITING

OF_BOTH: Final = {**options.TABLE, **sink_options.TABLE}


@attrs.frozen
class JobOptions:
    """The options that a job was given."""

    connection: Mapping[str, str]
    reading: Mapping[str, str]
    writing: Mapping[str, str]


def sorted_options(
    given: Iterable[tuple[str, str]], reads: bool, writes: bool, fields: Mapping[str, str]
) -> JobOptions:
    """Sort options for a job that reads messages, publishes them, or both. Raises BadOption for all others.

    `fields` has, by the names of options in lower case, what says the same to this job.
    """
    connection: dict[str, str] = {}
    reading: dict[str, str] = {}
    writing: dict[str, str] = {}
    for name, value in given:
        lower = name.lower()
        if lower in fields:
            raise BadOption(f"--option {name}: {fields[lower]} says that")
        if is_about_connection(lower):
            connection[name] = value
        elif lower in options.TABLE:
            _require(reads, name, "reads no messages from the broker")
            reading[name] = value
        elif lower in sink_options.TABLE:
            _require(writes, name, "publishes nothing")
            writing[name] = value
        else:
            options.require_known({name: value}, OF_BOTH, WRITING if writes and not reads else READING)
    return JobOptions(connection, reading, writing)


def _require(does: bool, name: str, what: str) -> None:
    if not does:
        raise BadOption(f"--option {name} is of no use here: this command {what}")
