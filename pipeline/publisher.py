"""A client of the broker's HTTP API for writing: stage pieces of a batch, commit it, publish (docs/bulk-access.md).

Every request may be repeated: pieces are numbered, and a batch that was committed stays committed. Errors name the
exchange, the option, the user.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn, TypeAlias, cast
from urllib.parse import quote

import attrs

from leveret.pipeline.broker_client import Answer, BrokerClient
from leveret.pipeline.errors import Missing, PipelineError, Refused, Unreachable, Unroutable
from leveret.pipeline.sink_options import SinkOptions

Part: TypeAlias = tuple[int, int, int]  # partition, attempt, rows

# A commit is answered after 25 s at the latest, as published or to be repeated. Rows that are published at once may
# have to wait for the disk.
PATIENCE_S: Final = 40
SIZE_MAX: Final = "limits.message_size_max"


@attrs.frozen
class Taken:
    """The rows of a part that are staged so far. `repeated`: the batch was committed before, and nothing was taken."""

    rows: int
    repeated: bool


@attrs.frozen
class Published:
    """The rows that reached a queue, and those that reached none. `repeated`: they were committed before."""

    rows: int
    unroutable: int
    repeated: bool = False


@attrs.frozen
class State:
    """The state of a name: its last committed batch, or -1, and how many committed rows are not yet published."""

    batch: int
    publishing: int


class Publisher:
    """Makes a writer's requests to the broker. Not to be shared by threads."""

    def __init__(
        self,
        options: SinkOptions,
        password: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._asker = BrokerClient(options, password, sleep, now)
        longer = attrs.evolve(options, timeout_s=max(options.timeout_s, PATIENCE_S))
        self._patient = BrokerClient(longer, password, sleep, now)
        self._vhost = quote(options.vhost, safe="")
        self._asked = {"mandatory": "true"} if options.mandatory else {}

    def close(self) -> None:
        self._asker.close()
        self._patient.close()

    # Staging.

    def stage(self, name: str, batch: int, partition: int, attempt: int, piece: int, blocks: bytes) -> Taken:
        """Stage a piece of a part. Raises PipelineError."""
        path = f"{self._staging(name)}/{batch}/{partition}/{attempt}"
        answer = self._asker.ask("POST", path, {"piece": piece, **self._asked}, blocks)
        found = self._content(answer)
        return Taken(_whole(found, "rows"), found.get("repeated") is True)

    def commit(self, name: str, batch: int, parts: Sequence[Part]) -> Published:
        """Commit a batch, and return when everything is in its queues. Raises PipelineError.

        Full queues are waited for as long as some rows find room.
        """
        waiting = sum(rows for _, _, rows in parts)
        while True:
            try:
                return self._committed(name, batch, parts)
            except Unreachable as trouble:
                state = self.state(name)
                if state is None or state.batch < batch:
                    raise
                if state.publishing >= waiting:
                    raise Unreachable(
                        f"batch {batch} is committed, but {state.publishing} rows have found no room in their queues"
                        f" for {self._options.retry_s} s (option retrySeconds). The broker publishes them as soon as"
                        f" there is room; nothing is lost, and a query that is started again goes on: {trouble}"
                    ) from None
                waiting = state.publishing

    def _committed(self, name: str, batch: int, parts: Sequence[Part]) -> Published:
        body = json.dumps({"parts": parts}).encode()
        path = f"{self._staging(name)}/{batch}/commit"
        answer = self._patient.ask("POST", path, None, body, "application/json")
        return _published(self._content(answer, (404, 409)))

    def drop(self, name: str, batch: int) -> None:
        """Drop the staged rows of a batch. A committed batch stays."""
        answer = self._asker.ask("DELETE", f"{self._staging(name)}/{batch}")
        if answer.status not in (404, 409):
            self._content(answer)

    def forget(self, name: str) -> None:
        """Drop everything that the broker knows of a name."""
        answer = self._asker.ask("DELETE", self._staging(name))
        if answer.status != 404:
            self._content(answer)

    def state(self, name: str) -> State | None:
        """Return the state of a name, or None if the broker does not know it."""
        answer = self._asker.ask("GET", self._staging(name))
        if answer.status == 404:
            return None
        found = self._content(answer)
        return State(_whole(found, "batch", -1), _whole(found, "publishing"))

    def _staging(self, name: str) -> str:
        return f"/api/leveret/staging/{self._vhost}/{quote(name, safe='')}"

    # Without staging.

    def publish(self, blocks: bytes) -> Published:
        """Publish rows at once; twice if the answer was lost. Raises PipelineError."""
        answer = self._patient.ask("POST", f"/api/leveret/publish/{self._vhost}", self._asked, blocks)
        return _published(self._content(answer))

    # Answers.

    def _content(self, answer: Answer, lost: Sequence[int] = (409,)) -> Mapping[str, object]:
        """Return the object of a good answer. `lost` are the statuses if nothing is staged. Raises PipelineError."""
        if answer.status in lost:
            raise Refused(f"the broker does not have what was staged (any more): {answer.reason}")
        if answer.status != 200:
            self._refuse(answer)
        return _object(answer)

    def _refuse(self, answer: Answer) -> NoReturn:
        user, where = self._options.username, f"virtual host '{self._options.vhost}'"
        reason = answer.reason
        if answer.status == 401:
            raise Refused(
                f"{self._asker.url} does not let '{user}' in: see the options username and passwordFile"
            )
        if answer.status == 403:
            raise Refused(f"user '{user}' may not publish that in {where}: {reason}")
        if answer.status == 404:
            raise Missing(f"the target of the rows is not in {where}: {reason}")
        if answer.status == 413:
            raise Refused(
                f"a row is larger than a message may be ({SIZE_MAX} of the broker's configuration): {reason}"
            )
        if answer.status == 400 and "larger than configured max size" in reason:
            raise Refused(f"a row is larger than a message may be: {reason} ({SIZE_MAX})")
        if answer.status == 422:
            raise Unroutable(
                f"a row would get into no queue: {reason}; bind one, or have such rows dropped with the option"
                " mandatory=false",
                str(_object(answer).get("key", "")),
            )
        raise Refused(f"{self._asker.url} answers {answer.status}: {reason}")


def _published(value: Mapping[str, object]) -> Published:
    return Published(_whole(value, "published"), _whole(value, "unroutable"), value.get("repeated") is True)


def _object(answer: Answer) -> Mapping[str, object]:
    try:
        content = json.loads(answer.octets)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise _strange("an object")
    return cast("Mapping[str, object]", content)


def _whole(content: Mapping[str, object], name: str, least: int = 0) -> int:
    value = content.get(name)
    if type(value) is not int or value < least:
        raise _strange(f"'{name}'")
    return value


def _strange(lacks: str) -> PipelineError:
    return PipelineError(
        f"the answer lacks {lacks}: is there a broker with staged publishing at the option endpoints?"
    )
