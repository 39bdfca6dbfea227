"""Read a Delta or Iceberg table with Spark without a package for the JVM: the files that its log names, no others."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from leveret.pipeline.jobs.lake_table import lake_table

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

PLACE: Final = "_leveret_file"  # a column that is there meanwhile
SLASHES: Final = "^file:/+"  # Spark writes one or three of them
KINDS: Final = {"day": "date"}  # partition columns that are no texts

Values = Mapping[str, str | None]


def table(spark: SparkSession, where: str, catalogue: str | None = None) -> DataFrame:
    """Return the rows of a table that `archive` has written, as its log has them now. Raises PipelineError.

    `catalogue` is one of Iceberg in pyiceberg's configuration; `where` is then NAMESPACE.TABLE.
    """
    found = lake_table(where, catalogue)
    files = found.files()
    if not files:
        from pyspark.sql.pandas.types import from_arrow_schema

        return spark.createDataFrame([], from_arrow_schema(found.schema()))
    return rows_of_files(spark, found.places(files), found.added(files), found.schema())


def rows_of_files(
    spark: SparkSession, files: Sequence[str], values: Sequence[Values], columns: pa.Schema
) -> DataFrame:
    """Return the rows of some data files of a table with these columns, of which older files may lack some, and with
    the values of the columns that it is partitioned by.

    The values come from the log: names of folders hold them only escaped, and each writer escapes in its own way.
    """
    import pyarrow as pa
    from pyspark.sql.functions import broadcast, col, regexp_replace
    from pyspark.sql.pandas.types import from_arrow_schema

    names = list(values[0]) if values else []
    in_files = pa.schema([field for field in columns if field.name not in names])
    rows = spark.read.schema(from_arrow_schema(in_files)).parquet(*files)
    if not names:
        return rows
    known = dict(zip(map(path_of, files), values, strict=True))
    places = [
        (re.sub(SLASHES, "file:/", uri), json.dumps(known[path_of(unquote(uri))]))
        for uri in rows.inputFiles()
    ]
    kinds = ", ".join(f"`{name}` string" for name in names)
    found = spark.createDataFrame(places, f"{PLACE} string, `values` string").selectExpr(
        PLACE, f"from_json(`values`, '{kinds}') as `values`"
    )
    joined = rows.withColumn(PLACE, regexp_replace("_metadata.file_path", SLASHES, "file:/")).join(
        broadcast(found), PLACE
    )
    made = [col("values")[name].cast(KINDS.get(name, "string")).alias(name) for name in names]
    return joined.select(*rows.columns, *made)


def path_of(file: str) -> str:
    """Return the path in a URI, or a path as it is."""
    return urlsplit(file).path if "://" in file else "/" + file.removeprefix("file:").lstrip("/")
