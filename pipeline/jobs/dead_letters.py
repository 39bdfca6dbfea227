"""Count dead letters by queue, reason and time.

The header `x-death` of a dead letter tells in which queues it died, why, and how often, the newest death first.
`deaths` makes columns of that, and `counted` counts them; the rest formats the counts, and needs no Spark.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

X_DEATH: Final = (
    "array<struct<count:bigint,reason:string,queue:string,time:string,exchange:string,"
    "`routing-keys`:array<string>>>"
)
COLUMNS: Final = "exchange string, routing_key string, timestamp timestamp, headers map<string,string>"
PERIODS: Final = ("minute", "hour", "day")
SHOWN: Final = 20  # lines of the table of dead letters


def deaths(rows: DataFrame) -> DataFrame:
    """Return a row for each message that has died, by its newest death. Takes the columns `timestamp` and `headers`.

    Gives `queue`, `reason`, `exchange` and `routing_key` (with which it came to that queue), `times` (how often it died
    there for that reason), `died` (when it first did).
    """
    from pyspark.sql.functions import col, expr, from_json

    newest = from_json(col("headers")["x-death"], X_DEATH)
    found = rows.withColumn("death", newest).where("size(death) > 0").withColumn("death", expr("death[0]"))
    # 0-9-1 has seconds since 1970 there; anything that is no time is replaced by the broker's own time.
    died = (
        "coalesce(timestamp_seconds(try_cast(death.time as bigint)), try_to_timestamp(death.time), timestamp)"
    )
    return found.selectExpr(
        "death.queue as queue",
        "death.reason as reason",
        "death.exchange as exchange",
        "get(death.`routing-keys`, 0) as routing_key",
        "coalesce(death.count, 1) as times",
        f"{died} as died",
    )


def counted(dead: DataFrame, period: str = "hour") -> DataFrame:
    """Count the messages by period, queue, reason, exchange and key.

    Gives `died`, `queue`, `reason`, `exchange`, `routing_key`, `messages`, `times`.
    """
    from pyspark.sql.functions import count, date_trunc
    from pyspark.sql.functions import sum as total

    names = ("queue", "reason", "exchange", "routing_key")
    grouped = dead.groupBy(date_trunc(period, "died").alias("died"), *names)
    return grouped.agg(count("*").alias("messages"), total("times").alias("times")).orderBy("died", *names)


# Counts and their formats.


@attrs.frozen
class Count:
    """The messages that died in a period. Times are UTC."""

    died: datetime
    queue: str
    reason: str
    exchange: str
    routing_key: str
    messages: int
    times: int = 0


def collected(rows: Iterable[Row]) -> list[Count]:
    """Return the rows of `counted` as records."""
    return [
        Count(
            row["died"],
            row["queue"] or "",
            row["reason"] or "",
            row["exchange"] or "",
            row["routing_key"] or "",
            row["messages"],
            row["times"] or 0,
        )
        for row in rows
    ]


def by_time(counts: Sequence[Count]) -> list[tuple[datetime, str, str, int]]:
    """Return period, queue, reason, messages."""
    found: Counter[tuple[datetime, str, str]] = Counter()
    for each in counts:
        found[each.died, each.queue, each.reason] += each.messages
    return [(*key, number) for key, number in sorted(found.items())]


def by_kind(counts: Sequence[Count]) -> list[tuple[str, str, str, str, int]]:
    """Return queue, reason, exchange, routing key, messages; most first."""
    found: Counter[tuple[str, str, str, str]] = Counter()
    for each in counts:
        found[each.queue, each.reason, each.exchange, each.routing_key] += each.messages
    return [(*key, number) for key, number in sorted(found.items(), key=lambda item: (-item[1], item[0]))]


def as_text(counts: Sequence[Count]) -> str:
    if not counts:
        return "no dead letters"
    kinds, times = by_kind(counts), by_time(counts)
    shown = [tuple(map(str, row)) for row in kinds[:SHOWN]]
    lines = columns([("queue", "reason", "exchange", "routing key", "messages"), *shown])
    if len(kinds) > SHOWN:
        lines.append(f"... and {len(kinds) - SHOWN} more; --csv or --json has all")
    over_time = [(f"{died:%Y-%m-%d %H:%M}", *map(str, rest)) for died, *rest in times]
    return "\n".join([*lines, "", *columns([("time (UTC)", "queue", "reason", "messages"), *over_time])])


def as_csv(counts: Sequence[Count]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["time", "queue", "reason", "exchange", "routing_key", "messages", "times"])
    for each in counts:
        named = (each.queue, each.reason, each.exchange, each.routing_key)
        writer.writerow([_time(each.died), *named, each.messages, each.times])
    return text.getvalue().rstrip("\n")


def as_json(counts: Sequence[Count]) -> str:
    return json.dumps([{**attrs.asdict(each), "died": _time(each.died)} for each in counts], indent=2)


def _time(died: datetime) -> str:
    return f"{died:%Y-%m-%dT%H:%M:%SZ}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows as columns; the numbers of the last column are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def cells(row: Sequence[str]) -> Iterator[str]:
        *texts, number = row
        yield from (text.ljust(width) for text, width in zip(texts, widths, strict=False))
        yield number.rjust(widths[-1])

    return ["  ".join(cells(row)) for row in rows]
