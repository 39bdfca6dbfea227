"""What readers of Delta tables see in one: polars, DuckDB with its extension, pyarrow and pandas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

Bodies = list[int]


def by_polars(where: Path) -> Bodies:
    import polars

    return [int(body) for body in polars.read_delta(str(where))["body"].to_list()]


def by_duckdb(where: Path) -> Bodies:
    import duckdb
    import duckdb_extension_delta

    extension = next(Path(str(duckdb_extension_delta.__file__)).parent.rglob("delta.duckdb_extension"))
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"load '{extension}'")
        rows = connection.execute("select body from delta_scan(?)", [str(where)]).fetchall()
    return [int(row[0]) for row in rows]


def by_pyarrow(where: Path) -> Bodies:
    from deltalake import DeltaTable

    table = DeltaTable(str(where)).to_pyarrow_table(columns=["body"])
    return [int(body) for body in table["body"].to_pylist()]


def by_pandas(where: Path) -> Bodies:
    from deltalake import DeltaTable

    return [int(body) for body in DeltaTable(str(where)).to_pandas(columns=["body"])["body"]]


READERS: Final[Mapping[str, Callable[[Path], Bodies]]] = {
    "polars": by_polars,
    "DuckDB": by_duckdb,
    "pyarrow": by_pyarrow,
    "pandas": by_pandas,
}
