"""Schemas that bodies name by a number: Confluent's wire format, and a registry that is asked over HTTP.

    body ── 0, four bytes of an id, for Protocol Buffers which message ──> schema, remembered by id
                                                             │ not known
                                                             └──> GET /schemas/ids/17

An id means the same schema for ever, so that is asked once. One that the registry does not know is asked about again
after a minute; ids come from publishers, so there is a limit to how many are asked about in that time.

Source: Confluent Schema Registry, "API Reference" (schemas, subjects) and "Wire format".
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import attrs

from leveret.pipeline.broker_client import PASSWORD_MAX, SOON
from leveret.pipeline.decoding import avro_bodies, json_bodies, protobuf_bodies
from leveret.pipeline.decoding.body_schema import BodySchema, Undecodable
from leveret.pipeline.errors import BadOption, PipelineError, Unauthorized, Unreachable

MAGIC: Final = 0
HEAD: Final = 5  # bytes: the magic one, and the id
SCHEMA_MAX: Final = 4 << 20  # bytes of an answer
REFERENCES_MAX: Final = 100  # schemas that one refers to
INDEXES_MAX: Final = 32  # in each other
KEPT_MAX: Final = 1000  # schemas that are remembered
UNKNOWN_MAX: Final = 100  # ids that the registry does not know, which are asked about within UNKNOWN_S
UNKNOWN_S: Final = 60.0
ATTEMPTS: Final = 3
PAUSE_S: Final = 0.5
PASSWORD, TOKEN = "LEVERET_REGISTRY_PASSWORD", "LEVERET_REGISTRY_TOKEN"


@attrs.frozen
class RegistryEndpoint:
    """A registry, and who asks. Secrets are not here, but in files or the environment."""

    url: str
    user: str | None = None
    password_file: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    timeout_s: float = 10.0

    def require(self) -> None:
        """Check the URL. Raises BadOption."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadOption(
                f"the registry's URL is not such as https://registry:8081: {parts.hostname or self.url!r}"
            )
        if parts.username or parts.password:
            raise BadOption("the registry's URL has a user or password in it: say --registry-user and a file")
        if self.token_file and (self.user or self.password_file):
            raise BadOption("a registry is asked with a token, or with a user and a password")
        if self.password_file and not self.user:
            raise BadOption("--registry-password-file is of no use without --registry-user")

    def authorization(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the header that lets us in; files are read anew, as tokens are renewed. Raises BadOption."""
        token = _line(self.token_file) if self.token_file else environ.get(TOKEN) if not self.user else None
        if token:
            return {"Authorization": f"Bearer {token}"}
        if not self.user:
            return {}
        password = _line(self.password_file) if self.password_file else environ.get(PASSWORD, "")
        pair = base64.b64encode(f"{self.user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}


def _line(file: str) -> str:
    """Return the first line of a file. Raises BadOption."""
    try:
        with Path(file).open("rb") as opened:
            return opened.read(PASSWORD_MAX).partition(b"\n")[0].strip().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"'{file}' cannot be read: {error}") from None


class RegistryClient:
    """Asks a registry."""

    def __init__(
        self,
        endpoint: RegistryEndpoint,
        environ: Mapping[str, str] = os.environ,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        endpoint.require()
        self._endpoint = endpoint
        self._environ = environ
        self._sleep = sleep

    @property
    def shown(self) -> str:
        return f"the registry at {urlsplit(self._endpoint.url).netloc}"

    def ask(self, path: str) -> dict[str, object] | None:
        """Return an answer's JSON; None if there is no such thing. Raises PipelineError."""
        for attempt in range(ATTEMPTS):
            try:
                status, octets = self._asked(path)
                if status not in SOON and status < 500:
                    return self._content(path, status, octets)
                trouble = f"it answers {status}"
            except ssl.SSLCertVerificationError as error:
                raise Unreachable(f"{self.shown}: {error.verify_message}; see --registry-ca-file") from None
            except (OSError, http.client.HTTPException) as error:
                trouble = str(error) or type(error).__name__
            if attempt + 1 < ATTEMPTS:
                self._sleep(PAUSE_S * 2**attempt)
        raise Unreachable(f"{self.shown} does not answer: {trouble}")

    def _content(self, path: str, status: int, octets: bytes) -> dict[str, object] | None:
        if status == 404:
            return None
        if status in (401, 403):
            raise Unauthorized(f"{self.shown} does not let {self._endpoint.user or 'us'} in ({status})")
        if status != 200:
            raise PipelineError(f"{self.shown} answers {status} to {path}")
        try:
            content = json.loads(octets)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise PipelineError(f"{self.shown} answers no JSON object to {path}: is it a registry?")
        return content

    def _asked(self, path: str) -> tuple[int, bytes]:
        head = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        head |= self._endpoint.authorization(self._environ)
        with closing(self._connected()) as connection:  # one each: an id is asked about once
            connection.request("GET", urlsplit(self._endpoint.url).path.rstrip("/") + path, headers=head)
            response = connection.getresponse()
            octets = response.read(SCHEMA_MAX + 1)
        if len(octets) > SCHEMA_MAX:
            raise PipelineError(f"{self.shown} answers with more than {SCHEMA_MAX} bytes to {path}")
        return response.status, octets

    def _connected(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._endpoint.url)
        assert parts.hostname is not None
        timeout = self._endpoint.timeout_s
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        try:
            context = ssl.create_default_context(cafile=self._endpoint.ca_file)
        except OSError as error:
            raise BadOption(
                f"--registry-ca-file '{self._endpoint.ca_file}' cannot be used: {error}"
            ) from None
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=context)


Known = Callable[[bytes, int], tuple[BodySchema, int]]  # of a body, by where the id ends


class RegistrySchemas:
    """The schemas of a registry, by the ids in bodies. Not to be shared by threads."""

    known = None

    def __init__(self, client: RegistryClient, kind: str, now: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._kind = kind  # json, avro or protobuf
        self._now = now
        self._found: dict[int, Known] = {}
        self._unknown: dict[int, tuple[float, str]] = {}  # until when nothing is asked, and why it is unknown

    def schema_for(self, body: bytes) -> tuple[BodySchema, int]:
        """Return the schema that a body names, and where its content begins. Raises Undecodable, PipelineError."""
        if len(body) < HEAD or body[0] != MAGIC:
            begin = f"it begins with byte {body[0]:#04x}, not 0" if body else "it is empty"
            raise Undecodable(f"the body has no id of a schema: {begin}")
        number = int.from_bytes(body[1:HEAD], "big")
        found = self._found.get(number)
        if found is None:
            found = self._asked(number)
            if len(self._found) >= KEPT_MAX:
                del self._found[next(iter(self._found))]
            self._found[number] = found
        return found(body, HEAD)

    def _asked(self, number: int) -> Known:
        now = self._now()
        until, reason = self._unknown.get(number, (0.0, ""))
        if now < until:
            raise Undecodable(reason)
        self._unknown = {each: entry for each, entry in self._unknown.items() if entry[0] > now}
        if len(self._unknown) >= UNKNOWN_MAX:
            raise Undecodable(
                f"schema {number} was not asked for: the registry knew none of {UNKNOWN_MAX} others"
            )
        try:
            return self._read(number)
        except (Undecodable, BadOption) as error:
            self._unknown[number] = now + UNKNOWN_S, str(error)
            raise Undecodable(str(error)) from None

    def _read(self, number: int) -> Known:
        query = "?format=serialized" if self._kind == "protobuf" else ""
        answer = self._client.ask(f"/schemas/ids/{number}{query}")
        name = f"schema {number}"
        if answer is None:
            raise Undecodable(f"the registry has no {name}")
        kind = str(answer.get("schemaType", "AVRO")).lower()  # registries leave it out for Avro
        if kind != self._kind:
            raise Undecodable(f"{name} is of {kind}, not of {self._kind}")
        text, referred = str(answer.get("schema")), self._referred(answer, query)
        if self._kind == "protobuf":
            files = [_descriptor(each, file) for file, each in referred.items()]
            return MessagesByIndex([*files, _descriptor(text, None)], name)
        if self._kind == "avro":
            return _same(avro_bodies.schema_of(text, name, referred))
        if referred:
            raise Undecodable(f"{name} refers to other schemas, as JSON Schemas of a registry may not here")
        return _same(json_bodies.schema_of(text, name))

    def _referred(self, answer: Mapping[str, object], query: str) -> dict[str, str]:
        """Return the schemas that one refers to, by name; those that they refer to come before them."""
        found: dict[str, str] = {}
        under_way: set[str] = set()

        def add(each: object) -> None:
            if not isinstance(each, dict) or not {"name", "subject", "version"} <= each.keys():
                raise Undecodable("the registry's answer has a reference without name, subject and version")
            name = str(each["name"])
            if name in found:
                return
            if len(under_way) >= REFERENCES_MAX:
                raise Undecodable(f"a schema refers to more than {REFERENCES_MAX} others")
            if name in under_way:
                raise Undecodable(f"schemas refer to each other: {name}")
            under_way.add(name)
            subject, version = quote(str(each["subject"]), safe=""), quote(str(each["version"]), safe="")
            other = self._client.ask(f"/subjects/{subject}/versions/{version}{query}")
            if other is None:
                raise Undecodable(f"the registry has no version {each['version']} of {each['subject']}")
            for further in _references(other):
                add(further)
            found[name] = str(other.get("schema"))

        for each in _references(answer):
            add(each)
        return found


def _references(answer: Mapping[str, object]) -> list[object]:
    found = answer.get("references") or []
    return found if isinstance(found, list) else []


def _same(schema: BodySchema) -> Known:
    return lambda body, at: (schema, at)


def _descriptor(text: str, name: str | None) -> object:
    """Return the descriptor of a file, which references name. Raises Undecodable."""
    protobuf_bodies.require()
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        found = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise Undecodable("the registry gives no descriptors of messages (format=serialized)") from None
    if name is not None:
        found.name = name
    return found


class MessagesByIndex:
    """The messages of a file, by the indexes that a body begins with."""

    def __init__(self, files: list[object], name: str) -> None:
        self._files = files
        self._name = name
        self._found: dict[tuple[int, ...], BodySchema] = {}

    def __call__(self, body: bytes, at: int) -> tuple[BodySchema, int]:
        indexes, at = indexes_at(body, at)
        schema = self._found.get(indexes)
        if schema is None:
            try:
                schema = protobuf_bodies.schema_at(self._files, indexes, self._name)
            except BadOption as error:
                raise Undecodable(str(error)) from None
            if len(self._found) < KEPT_MAX:
                self._found[indexes] = schema
        return schema, at


def indexes_at(body: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Return which message of a file a body is, outermost first, and where its content begins. Raises Undecodable."""
    count, at = _number_at(body, at)
    if count == 0:
        return (0,), at  # the usual one takes a byte only
    if not 0 < count <= INDEXES_MAX:
        raise Undecodable(f"the body has {count} indexes of a message")
    found = []
    for _ in range(count):
        index, at = _number_at(body, at)
        if index < 0:
            raise Undecodable(f"the body has the index {index} of a message")
        found.append(index)
    return tuple(found), at


def _number_at(body: bytes, at: int) -> tuple[int, int]:
    """Return a number as a zigzag varint, and where it ends. Raises Undecodable."""
    value = shift = 0
    while at < len(body) and shift < 35:
        value |= (body[at] & 0x7F) << shift
        at += 1
        if body[at - 1] < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise Undecodable("the body ends within the indexes of its message")
