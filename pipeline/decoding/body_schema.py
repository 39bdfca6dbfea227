"""The schema of a body: the columns that it becomes, and a function from its bytes to their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import attrs
import pyarrow as pa  # type: ignore[import-untyped]

REASON_MAX: Final = 500  # characters
SHOWN: Final = 60  # characters of a value in a reason

Values = Mapping[str, object]


class Undecodable(Exception):  # noqa: N818 - a state of affairs
    """Raised for a body that is not what its schema says. Its text is the reason, for the table of such rows."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason[:REASON_MAX])


def shown(value: object) -> str:
    """Return the beginning of a value for a reason."""
    text = repr(value) if isinstance(value, str | bytes | int | float) else type(value).__name__
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


@attrs.frozen(eq=False)
class BodySchema:
    """A schema, ready for use."""

    name: str  # for reasons and errors, such as `schema 17` or the path of a file
    columns: pa.Schema
    decode: Callable[[bytes], Values]  # raises Undecodable


class BodySchemas(Protocol):
    """The source of schemas: one file, or a registry."""

    @property
    def known(self) -> BodySchema | None:
        """The one schema of all bodies; None if each body names its own."""

    def schema_for(self, body: bytes) -> tuple[BodySchema, int]:
        """Return the schema of a body, and where its content begins. Raises Undecodable, PipelineError."""


@attrs.frozen
class OneSchema:
    """The schema of a file, for all bodies."""

    known: BodySchema

    def schema_for(self, body: bytes) -> tuple[BodySchema, int]:
        return self.known, 0
