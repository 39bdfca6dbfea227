"""An object store on this machine that speaks S3: moto's server, which keeps everything in memory.

    python -m tests.pipeline.object_store        # prints its URL, and serves until its standard input ends

It takes `If-None-Match: *`, by which only the first of several puts of one name succeeds. One request is answered at a
time, so that this holds whatever its threads do.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from subprocess import PIPE
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

BUCKET: Final = "lakes"
KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMIhush"

Application = Callable[[dict[str, Any], "StartResponse"], Any]


def variables(url: str) -> dict[str, str]:
    """Return the environment of a program that uses the store."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def in_turn(application: Application) -> Application:
    """Return an application that answers one request at a time."""
    lock = threading.Lock()

    def answer(environ: dict[str, Any], start: StartResponse) -> list[bytes]:
        with lock:
            return [b"".join(application(environ, start))]

    return answer


def main() -> None:
    from moto.moto_server.werkzeug_app import create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # Of S3 alone: moto's own dispatcher looks through its folder of services for each request, a third of its time.
    application = in_turn(create_backend_app("s3"))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.port}"
    client_of(url).create_bucket(Bucket=BUCKET)
    print(url, flush=True)
    sys.stdin.read()


def client_of(url: str) -> Any:
    """Return a client that looks at the store by itself."""
    import boto3

    keys: Mapping[str, str] = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
    return boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)


@contextmanager
def object_store() -> Iterator[str]:
    """Yield the URL of a store that lives as long as the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.object_store"], stdin=PIPE, stdout=PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    main()
