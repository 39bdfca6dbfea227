"""What readers of Delta and of Iceberg tables see in one: polars, DuckDB with its extensions, pyarrow and pandas."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.pipeline.archiver import NAME

if TYPE_CHECKING:
    import polars
    from pyiceberg.table import Table

Bodies = list[int]


def by_polars(where: Path) -> Bodies:
    import polars

    return [int(body) for body in polars.read_delta(str(where))["body"].to_list()]


def by_duckdb(where: Path) -> Bodies:
    return _by_duckdb("select body from delta_scan(?)", str(where), "delta")


def _by_duckdb(query: str, where: str, *extensions: str) -> Bodies:
    return [int(row[0]) for row in rows_by_duckdb(query, where, *extensions)]


def rows_by_duckdb(query: str, where: str, *extensions: str) -> list[tuple[Any, ...]]:
    """Return what DuckDB finds, with extensions of packages of their own, as it would load them from the net."""
    import duckdb

    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for name in extensions:
            package = import_module(f"duckdb_extension_{name}")
            file = next(Path(str(package.__file__)).parent.rglob(f"{name}.duckdb_extension"))
            connection.execute(f"load '{file}'")
        return connection.execute(query, [where]).fetchall()


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


# Of Iceberg.


def loaded(where: Path | str) -> Table:
    """Return the table as pyiceberg has it, by the catalogue in its folder, or a name in that of the environment."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    if isinstance(where, str):
        return load_catalog(NAME, **Config().get_catalog_config(NAME) or {}).load_table(where)
    settings = {"type": "sql", "uri": f"sqlite:///{where / 'catalog.db'}", "warehouse": f"file://{where}"}
    return load_catalog("leveret", **settings).load_table(("leveret", where.name.replace(".", "_")))


def iceberg_by_pyiceberg(where: Path | str) -> Bodies:
    return [
        int(body) for body in loaded(where).scan(selected_fields=("body",)).to_arrow()["body"].to_pylist()
    ]


def iceberg_by_polars(where: Path | str) -> Bodies:
    rows = scanned(where).select("body").collect()
    return [int(body) for body in rows["body"].to_list()]


def scanned(where: Path | str) -> polars.LazyFrame:
    """Return the table as polars has it."""
    import polars

    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"  # without a package of its own, of which it would warn
    return polars.scan_iceberg(loaded(where))


def iceberg_by_duckdb(where: Path | str) -> Bodies:
    query = "select body from iceberg_scan(?)"
    return _by_duckdb(query, loaded(where).metadata_location, "avro", "iceberg")


def iceberg_by_pandas(where: Path | str) -> Bodies:
    return [int(body) for body in loaded(where).scan(selected_fields=("body",)).to_pandas()["body"]]


ICEBERG_READERS: Final[Mapping[str, Callable[[Path | str], Bodies]]] = {
    "pyiceberg": iceberg_by_pyiceberg,
    "polars": iceberg_by_polars,
    "DuckDB": iceberg_by_duckdb,
    "pandas": iceberg_by_pandas,
}


# Of Delta in an object store, with the environment's credentials.


def store_by_polars(where: str) -> Bodies:
    import polars

    return [int(body) for body in polars.read_delta(where)["body"].to_list()]


def store_by_pyarrow(where: str) -> Bodies:
    from deltalake import DeltaTable

    table = DeltaTable(where).to_pyarrow_table(columns=["body"])
    return [int(body) for body in table["body"].to_pylist()]


STORE_READERS: Final[Mapping[str, Callable[[str], Bodies]]] = {
    "polars": store_by_polars,
    "pyarrow": store_by_pyarrow,
}
