"""The errors between Spark and a broker; their texts are for the author of the query."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SHORT_STACKS: Final = "SPARK_SIMPLIFIED_TRACEBACK"  # what Spark sets for its workers, by default


class PipelineError(Exception):
    """The base of all errors here: the query ends with it."""


class BadOption(PipelineError):  # noqa: N818 - a state of affairs, not a mistake of ours
    """An option that is unknown, missing, or has a value that makes no sense."""


class BadRow(PipelineError):  # noqa: N818
    """A column that cannot be published, or a value in one of its rows."""


class Refused(PipelineError):  # noqa: N818
    """Raised when the broker refuses a request: wrong password, no permission, no such stream."""


class Unauthorized(Refused):
    """Raised when the broker does not let the user in, also with a password that was read again."""


class Missing(Refused):
    """Raised when there is no such stream."""


class Unroutable(Refused):
    """Raised when a row would get into no queue: see the option mandatory."""

    def __init__(self, text: str, key: str) -> None:
        super().__init__(text, key)
        self.key = key

    def __str__(self) -> str:
        return str(self.args[0])


class NoStream(Refused):
    """Raised for a queue where a stream is expected; a queue is read through a lease."""


class Fenced(PipelineError):  # noqa: N818
    """Raised when another query has opened the lease since this one did."""


class Unreachable(PipelineError):  # noqa: N818
    """Raised when no endpoint has answered after all retries."""


class DataLoss(PipelineError):  # noqa: N818
    """Raised when messages that the query has not read are gone, or may be: see the option failOnDataLoss."""


class Expired(DataLoss):
    """Raised when retention has deleted the requested messages. The remaining ones begin at `first`."""

    def __init__(self, text: str, first: int) -> None:
        super().__init__(text, first)  # both, as errors travel between processes pickled
        self.first = first

    def __str__(self) -> str:
        return str(self.args[0])


class Remade(DataLoss):
    """Raised when the stream was deleted and another one has its name."""


class Ahead(DataLoss):
    """Raised when the stream ends before the requested offset."""


@contextmanager
def leading() -> Iterator[None]:
    """Have the text of an error come before the stack of calls, where a worker of Spark writes both into one text.

    Python writes the cause of an error before the error, and of a cause without a stack the text alone. Spark Connect
    shows its clients the beginning of such a text. A worker that is to write short stacks forgets causes; one that has
    met such an error writes whole stacks from then on.
    """
    try:
        yield
    except PipelineError as error:
        os.environ.pop(SHORT_STACKS, None)
        raise error from type(error)(*error.args)
