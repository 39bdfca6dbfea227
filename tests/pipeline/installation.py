"""A Spark that starts in a fraction of the time, for tests.

Its Java has a quick compiler, and trusts the classes that it loads. Spark has each of its Python processes import
PySpark from a zip of sources, which is translated anew every time, half a second or a whole one: here they find the
installed packages instead, which are translated. A third of Spark's jars is for what no test does: without them, Java
finds a class sooner.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CACHE: Final = ROOT / "build"  # not .cache, which zensical takes for its own
QUICK: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
# Beginnings of the names of jars.
CLUSTERS: Final = ("kubernetes-", "vertx-", "volcano-", "spark-kubernetes", "spark-yarn")
HIVE: Final = ("hive-", "spark-hive", "datanucleus-", "derby", "jdo-", "javax.jdo", "HikariCP")
LEARNING: Final = (
    "spark-mllib_",
    "breeze",
    "spire",
    "cats-",
    "algebra",
    "lapack",
    "arpack",
    "blas",
    "JTransforms",
)
OTHERS: Final = (
    "spark-graphx",
    "spark-repl",
    "scala-compiler",
    "jline-",
    "JLargeArrays",
    "netty-tcnative-boringssl",
)
UNUSED: Final = (*CLUSTERS, *HIVE, *LEARNING, *OTHERS)
SETTINGS: Final = {
    "spark.driver.extraJavaOptions": QUICK,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",  # to compile takes longer than the little there is to do
    "spark.ui.enabled": "false",
}


def environment() -> dict[str, str]:
    """Return the variables with which Spark is started."""
    return {"SPARK_HOME": str(home()), "SPARK_LAUNCHER_OPTS": QUICK}


@cache
def home() -> Path:
    """Return the folder for SPARK_HOME. It is made once for a PySpark."""
    source = _package("pyspark")
    known = f"{source} {version('pyspark')} {Path(__file__).read_text()}".encode()
    made = CACHE / f"spark-home-{blake2b(known, digest_size=8).hexdigest()}"
    CACHE.mkdir(exist_ok=True)
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            draft = Path(folder) / "spark"
            (draft / "jars").mkdir(parents=True)
            for each in (source / "bin", *(source / "jars").iterdir()):
                if not each.name.startswith(UNUSED):
                    (draft / each.relative_to(source)).symlink_to(each)
            for zipped in (source / "python/lib").glob("*.zip"):
                packages = draft / "python/lib" / zipped.name
                packages.mkdir(parents=True)
                package = _package(zipped.stem.split("-")[0])
                (packages / package.name).symlink_to(package)
            with suppress(OSError):  # another process was first
                draft.rename(made)
    return made


def _package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
