"""Run `leveret pipeline files`, `check`, `optimize`, `clean`, `decode` and `convert` with parsed arguments."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from leveret.pipeline.broker_client import BrokerClient
from leveret.pipeline.errors import BadOption
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs import lag as lags
from leveret.pipeline.jobs.archive import ICEBERG, Target, checkpoint_of
from leveret.pipeline.jobs.commands import DONE, FAILED, reached, told
from leveret.pipeline.jobs.dead_letters import columns
from leveret.pipeline.jobs.lake_table import lake_table

if TYPE_CHECKING:
    from leveret.pipeline.jobs import upkeep
    from leveret.pipeline.jobs.lake_table import LakeTable

Environ = Mapping[str, str]


@told
def files(options: argparse.Namespace, environ: Environ) -> int:
    found = lake_table(options.target, options.catalog)
    listed = found.files()
    for each, place in zip(listed, found.places(listed), strict=True):
        if options.json:
            fields = {"file": place, "bytes": each.octets, "rows": each.rows, "values": each.values}
            print(json.dumps(fields))
        else:
            print(place)
    rows = sum(each.rows or 0 for each in listed)
    octets = sum(each.octets for each in listed)
    print(f"{len(listed):,} files, {rows:,} rows, {octets:,} bytes", file=sys.stderr)
    return DONE


@told
def check(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.pipeline.jobs import upkeep

    reach = None if options.offline else reached(options, environ)
    table = _archive(options)
    checkpoint = delta.folder_of(options.checkpoint or checkpoint_of(options.target))
    found = upkeep.offsets_of(table)
    marks = table.marks(checkpoint)
    streams, leases = {}, []
    if reach is not None:
        client, asker = reach.client(), BrokerClient(reach.quick())
        try:
            streams = upkeep.streams_of((each[0] for each in found), client)
            if {each[0] for each in found} - {each[0] for each in streams}:  # queues
                leases = lags.leases(asker, reach.vhost)
        finally:
            client.close()
            asker.close()
    damaged = _damaged(table)
    rows = upkeep.checked(found, marks, streams, upkeep.leases_of(marks, leases))
    troubles = [
        *damaged,
        *(f"{each.source}/{each.partition}: {value}" for each in rows for value in each.troubles),
    ]
    if options.json:
        print(json.dumps({"partitions": [attrs.asdict(each) for each in rows], "damaged": damaged}, indent=2))
    else:
        print("\n".join([*check_lines(rows), *troubles, verdict(rows, troubles)]))
    return FAILED if troubles else DONE


def _archive(options: argparse.Namespace) -> LakeTable:
    """Return the archive that is named. Raises PipelineError, BadOption for a table of rows that were not decoded."""
    table = lake_table(options.target, options.catalog)
    if table.is_undecoded:
        raise BadOption(
            f"{table.where} has rows of an archive that could not be decoded: name the archive instead"
        )
    return table


def _damaged(table: LakeTable) -> list[str]:
    more = [damage for beside in table.undecoded() for damage in beside.damaged(beside.files())]
    return [*table.damaged(table.files()), *(f"undecoded: {each}" for each in more)]


def check_lines(rows: list[upkeep.Checked]) -> list[str]:
    """Return a table for people."""
    names = (
        "source",
        "partition",
        "first",
        "next",
        "missing",
        "repeated",
        "checkpoint",
        "broker has",
        "rows",
    )
    lines = [
        (
            each.source,
            *map(str, (each.partition, each.first, each.next, each.missing, each.repeated)),
            "-" if each.position is None else f"{each.position}",
            "-" if each.end is None else f"{each.oldest} to {each.end}",
            str(each.rows),
        )
        for each in rows
    ]
    return columns([names, *lines])


def verdict(rows: list[upkeep.Checked], troubles: list[str]) -> str:
    total = sum(each.rows for each in rows)
    if troubles:
        return f"{total:,} rows, {len(troubles)} problem{'s' if len(troubles) > 1 else ''}"
    behind = sum(max(0, each.end - each.next) for each in rows if each.end is not None)
    more = f", {behind:,} messages behind the broker" if any(each.end is not None for each in rows) else ""
    return f"{total:,} rows, each message once{more}"


@told
def optimize(options: argparse.Namespace, environ: Environ) -> int:
    table = _archive(options)
    if options.dry_run:
        small = [each for each in table.files() if each.octets < options.file_size]
        octets = sum(each.octets for each in small)
        print(f"{len(small):,} files, {octets:,} bytes, are smaller than {options.file_size:,} bytes")
        return DONE
    done = table.optimized(options.file_size)
    print(
        f"{done.read:,} files, {done.octets_read:,} bytes, became {done.written:,}, {done.octets_written:,} bytes"
    )
    return DONE


@told
def clean(options: argparse.Namespace, environ: Environ) -> int:
    table = _archive(options)
    tables = table.undecoded()
    found = table.orphans(options.older_than, options.delete)
    for beside in tables:
        more = beside.orphans(options.older_than, options.delete)
        found += [attrs.evolve(each, path=f"{beside.where}/{each.path}") for each in more]
    for each in found:
        age = "" if each.age_s is None else f"  {each.age_s / 3600:,.1f} h old"
        print(f"{each.path}{age}" + ("" if each.octets is None else f", {each.octets:,} bytes"))
    octets = sum(each.octets or 0 for each in found)
    what = f"{len(found):,} files that are in no version of the table, or no longer, {octets:,} bytes"
    done = (
        "removed"
        if options.delete
        else "nothing is removed without --delete"
        if found
        else "nothing to remove"
    )
    print(f"{what}: {done}", file=sys.stderr)
    return DONE


@told
def decode(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.pipeline.decoding.arguments import decode_options
    from leveret.pipeline.jobs.archive_run import format_for, require_decodable, require_writable
    from leveret.pipeline.jobs.decoding import decode_again

    how = decode_options(options)
    assert how is not None
    kind = ICEBERG if options.catalog else format_for(options.target, None)
    target = Target(options.target, kind, catalogue=options.catalog)
    require_writable(target)
    require_decodable(target, how)
    done = decode_again(target, how)
    print(f"{done.moved:,} rows were moved to {options.target}, {done.left:,} still cannot be decoded")
    return DONE


@told
def convert(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.pipeline.jobs import convert as converting

    delta.require()
    folder = delta.folder_of(options.target)
    checkpoint = delta.folder_of(options.checkpoint or checkpoint_of(options.target))
    if folder is None or checkpoint is None:
        raise BadOption("only folders of this machine can be converted")
    found = converting.looked_at(folder, checkpoint)
    rows = sum(each.rows for each in found.files)
    by = ", ".join(found.by) or "nothing"
    print(f"{len(found.files):,} files with {rows:,} rows, partitioned by {by}, up to batch {found.batch}")
    if found.query is None:
        print(f"there is no checkpoint at {checkpoint}: name it with --checkpoint if archiving is to go on")
    if options.dry_run:
        print("nothing is changed in a dry run")
        return DONE
    converting.convert(folder, found)
    print(f"{folder} is a Delta table now; {converting.DONE} is what it was")
    return DONE
