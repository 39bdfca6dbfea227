"""Say how bodies are decoded: in which format, by which schemas, and what a table has of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs

from leveret.pipeline.decoding import avro_bodies, json_bodies, protobuf_bodies
from leveret.pipeline.decoding.body_schema import BodySchema, BodySchemas, OneSchema
from leveret.pipeline.decoding.registry import RegistryClient, RegistryEndpoint, RegistrySchemas
from leveret.pipeline.errors import BadOption

JSON, AVRO, PROTOBUF = "json", "avro", "protobuf"
FORMATS: Final = (JSON, AVRO, PROTOBUF)
FILE_MAX: Final = 4 << 20  # bytes of a schema


@attrs.frozen
class DecodeOptions:
    """The options of decoding. They hold no password, so that they may be printed."""

    format: str
    schema: str | None = None  # a file
    registry: RegistryEndpoint | None = None  # or this
    message: str | None = None  # of Protocol Buffers, in the file
    prefix: str = ""  # of the names of decoded columns
    keeps_body: bool = True
    undecoded: str | None = None  # the table of rows that cannot be decoded; None: beside the other

    def require(self) -> None:
        """Check what does not need a file or a registry. Raises BadOption."""
        if self.format not in FORMATS:
            raise BadOption(f"bodies can be decoded from {', '.join(FORMATS)}, not from '{self.format}'")
        if (self.schema is None) == (self.registry is None):
            raise BadOption("to decode bodies, name a file with --schema, or a registry with --registry")
        if self.message is not None and (self.format != PROTOBUF or self.schema is None):
            raise BadOption("--message names a message in a --schema of protobuf")
        if self.registry is not None:
            self.registry.require()

    @property
    def shown(self) -> str:
        """The place of the schemas."""
        return self.schema if self.registry is None else self.registry.url  # type: ignore[return-value]

    def schemas(self) -> BodySchemas:
        """Return the source of schemas. Raises PipelineError."""
        self.require()
        if self.format == AVRO:
            avro_bodies.require()
        elif self.format == PROTOBUF:
            protobuf_bodies.require()
        if self.registry is not None:
            return RegistrySchemas(RegistryClient(self.registry), self.format)
        assert self.schema is not None
        return OneSchema(self._in_file(Path(self.schema)))

    def _in_file(self, file: Path) -> BodySchema:
        try:
            with file.open("rb") as opened:
                octets = opened.read(FILE_MAX + 1)
            text = "" if self.format == PROTOBUF else octets.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise BadOption(f"the schema '{file}' cannot be read: {error}") from None
        if len(octets) > FILE_MAX:
            raise BadOption(f"the schema '{file}' has more than {FILE_MAX} bytes")
        if self.format == PROTOBUF:
            return protobuf_bodies.schema_in(octets, self.message, file.name)
        schema_of = avro_bodies.schema_of if self.format == AVRO else json_bodies.schema_of
        return schema_of(text, file.name)
