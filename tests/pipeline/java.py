"""Options of Java with which Spark starts in a quarter of the time: a quick compiler, and classes loaded beforehand.

    python -m tests.pipeline.java ARCHIVE      starts Spark, and has its Java keep its classes in a file

The file is made once, for one Java and one PySpark, by a start that takes three seconds longer; each start after that
takes four less, half of the processor time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

import pyspark

ROOT: Final = Path(__file__).parents[2]
CACHE: Final = ROOT / ".cache"
PLAIN: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TIMEOUT_S: Final = 300


@cache
def quick() -> str:
    """The options; those without an archive where Java cannot make one."""
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ.get('PATH', '')}")
    if java is None:
        return PLAIN
    known = f"{Path(java).resolve()} {Path(java).stat().st_mtime} {pyspark.__file__} {pyspark.__version__}"
    archive = CACHE / f"spark-{blake2b(known.encode(), digest_size=8).hexdigest()}.jsa"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "spark.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            made = archive.with_suffix(f".{os.getpid()}")
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    [sys.executable, "-m", __name__, str(made)],
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=TIMEOUT_S,
                    check=False,
                )
            if not made.exists():
                return PLAIN
            made.rename(archive)
    return f"{PLAIN} -XX:SharedArchiveFile={archive}"


def main() -> None:
    from pipeline.session import session

    settings = {
        "spark.driver.extraJavaOptions": f"{PLAIN} -XX:ArchiveClassesAtExit={sys.argv[1]}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.codegen.wholeStage": "false",
    }
    spark = session("classes", "local[2]", settings)
    spark.range(10).selectExpr("count(*)").collect()
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    java.stdin.close()  # which ends it
    java.wait(TIMEOUT_S)


if __name__ == "__main__":
    main()
