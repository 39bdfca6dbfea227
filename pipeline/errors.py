"""What can go wrong between Spark and a broker, each said once, in the words of the person who wrote the query."""

from __future__ import annotations


class PipelineError(Exception):
    """Anything below: the query ends with it."""


class BadOption(PipelineError):  # noqa: N818 - a state of affairs, not a mistake of ours
    """An option that is unknown, missing, or has a value that makes no sense."""


class BadRow(PipelineError):  # noqa: N818
    """A column that cannot be published, or what stands in one of its rows."""


class Refused(PipelineError):  # noqa: N818
    """The broker has understood, and will not: wrong password, no permission, no such stream."""


class Missing(Refused):
    """There is no such stream."""


class NoStream(Refused):
    """It is a queue, which is read through a lease."""


class Fenced(PipelineError):  # noqa: N818
    """Another query has opened the lease since this one did."""


class Unreachable(PipelineError):  # noqa: N818
    """No endpoint has answered, however often it was asked."""


class DataLoss(PipelineError):  # noqa: N818
    """Messages that the query has not seen are gone, or may be: see the option failOnDataLoss."""


class Expired(DataLoss):
    """Retention has taken messages that were asked for. What is left begins at `first`."""

    def __init__(self, text: str, first: int) -> None:
        super().__init__(text, first)  # both, as errors travel between processes pickled
        self.first = first

    def __str__(self) -> str:
        return str(self.args[0])


class Remade(DataLoss):
    """The stream was deleted, and another one has its name."""


class Ahead(DataLoss):
    """The stream ends before the offset that was asked for."""
