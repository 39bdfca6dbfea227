"""The suites: where the tests of each library come from, how they are run, and what they need of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

PYTEST: Final = ("pytest>=8,<9", "pytest-timeout", "pytest-rerunfailures")
# Once more at most, on both brokers: some of these tests count on times that a busy machine does not keep.
RUN_PYTEST: Final = (
    "{python}",
    "-m",
    "pytest",
    "-q",
    "-o",
    "addopts=",
    "-p",
    "no:cacheprovider",
    "--timeout=60",
    "--reruns=1",
    "--junitxml={report}",
)
RUN_NODE: Final = (
    "node",
    "--test",
    "--test-timeout=20000",
    "--test-reporter=junit",
    "--test-reporter-destination={report}",
)
RUN_MOCHA: Final = (
    "npx",
    "mocha",
    "--exit",  # not when the last child ends: one whose test has failed may wait without end
    "--timeout=20000",
    "--reporter=xunit",
    "--reporter-option=output={report}",
)


@attrs.frozen
class Suite:
    """The tests of one library, and the place they come from: a release on PyPI, or a tag of a repository."""

    name: str
    version: str
    command: tuple[str, ...]
    repository: str = ""  # the release has no tests
    requirements: tuple[str, ...] = ()  # of the tests, from PyPI
    npm: bool = False
    prepare: tuple[str, ...] = ()  # a command that runs once, after the dependencies have come
    profile: str = "rabbitmq-3.13"
    # The broker's, its key and its authority's, in the sources.
    certificates: tuple[str, str, str] | None = None
    jwks: str = ""  # keys of the tokens that the tests make themselves
    least_rabbitmq: tuple[int, int] = (3, 0)  # what an older one cannot do, the tests assert
    left_out: Mapping[str, str] = attrs.field(factory=dict)  # parts of names, and why


TLS: Final = "needs a broker with certificates that its release does not have"
CONTAINERS: Final = "starts, stops and kills containers of its own"
AIO_TOOLS: Final = (*PYTEST, "aiomisc-pytest>=2,<3", "aiomisc", "shortuuid", "timeout-decorator")
SUITES: Final = (
    Suite(
        "pika",
        "1.4.0",
        (*RUN_PYTEST, "tests/acceptance"),
        repository="https://github.com/pika/pika",
        requirements=(*PYTEST, "tornado", "twisted", "gevent"),
        left_out={"GoogleDotCom": "looks a name up in the internet, and asks no broker"},
    ),
    Suite(
        "aiormq",
        "7.2.4",
        (*RUN_PYTEST, "-p", "running_broker", "-p", "no:asyncio", "tests"),
        requirements=AIO_TOOLS,
        certificates=("tests/certs/server.pem", "tests/certs/server.key", "tests/certs/ca.pem"),
        left_out={
            # Each failed in two of three runs on RabbitMQ, too.
            "test_closing_waiter_cancellation": "fails now and then on either broker: the client's own race",
            "test_connection_close_during_publish_drain": "fails now and then on either broker: the client's own race",
        },
    ),
    Suite(
        "aio-pika",
        "10.2.1",
        (*RUN_PYTEST, "-p", "running_broker", "-p", "no:asyncio", "tests"),
        requirements=AIO_TOOLS,
        left_out={
            "amqps": TLS,
            "test_robust_recovery": CONTAINERS,
            # Behind a proxy that holds the answer back for 5 ms it always passes.
            "test_leak_unclosed_channel": "counts on a broker that takes milliseconds to answer a close",
            "test_create_channels_during_reconnect": "fails now and then on either broker: the client's own race",
        },
    ),
    Suite(
        "amqplib",
        "2.0.1",
        RUN_NODE,
        repository="https://github.com/amqp-node/amqplib",
        npm=True,
    ),
    Suite(
        "amqp",
        "5.4.2",
        (*RUN_PYTEST, "t/integration"),
        requirements=PYTEST,
        left_out={"tls": TLS},
    ),
    Suite(
        "kombu",
        "5.7.0",
        (*RUN_PYTEST, "t/integration/test_py_amqp.py"),
        requirements=(*PYTEST, "pytz"),
    ),
    Suite(
        "amqpstorm",
        "3.1.4",
        (*RUN_PYTEST, "amqpstorm/tests/functional"),
        requirements=(*PYTEST, "requests"),
        left_out={
            "ssl": TLS,
            "test_api_cluster_name": "asserts the name of the broker of its authors",
        },
    ),
    Suite(
        "rhea",
        "3.0.4",
        # Its other tests have two ends that are both rhea.
        (*RUN_MOCHA, "--grep=brokered", "examples/test_examples.js"),
        repository="https://github.com/amqp/rhea",
        npm=True,
        prepare=("npx", "require-self"),
    ),
    Suite(
        "rabbitmq-amqp-python-client",
        "0.6.0",
        (*RUN_PYTEST, "-o", "asyncio_mode=auto", "tests"),
        repository="https://github.com/rabbitmq/rabbitmq-amqp-python-client",
        requirements=(*PYTEST, "pytest-asyncio>=1.2,<2", "pyjwt", "pika", "requests"),
        profile="rabbitmq-4",
        certificates=(
            ".ci/certs/server_localhost_certificate.pem",
            ".ci/certs/server_localhost_key.pem",
            ".ci/certs/ca_certificate.pem",
        ),
        jwks='{"keys": [{"kty": "oct", "use": "sig", "alg": "HS256", "kid": "token-key",'
        ' "k": "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"}]}',
        least_rabbitmq=(4, 0),
        left_out={
            "ssl": "its certificates have expired",
            "test_stream_reconnection": "the client fails by itself: it calls `offset` of options that have none",
            "token_with_disconnection": "counts on RabbitMQ not listing a connection in its first second",
        },
    ),
)
# By these variables the suites find the broker: each has a network of its own, with the usual ports.
ENVIRONMENT: Final = {
    "RABBITMQ_HOST": "127.0.0.1",
    "RABBITMQ_5672_TCP": "5672",
    "AMQP_HOST": "127.0.0.1",
    "AMQP_USERNAME": "guest",
    "AMQP_PASSWORD": "guest",
    "AMQP_URI": "amqp://guest:guest@127.0.0.1:5672/%2F",
    "AMQP_URL": "amqp://guest:guest@127.0.0.1:5672//",
    "AMQP_HTTP_URL": "http://127.0.0.1:15672",
}
