"""Bodies of Protocol Buffers by descriptors of their messages: a file that `protoc --descriptor_set_out` writes, or
what a registry has.

Source: Protocol Buffers, `descriptor.proto` and "Field Presence".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from leveret.pipeline.decoding.body_schema import BodySchema, Undecodable, Values
from leveret.pipeline.decoding.column_types import DEPTH_MAX, JSON_TEXT, TIME
from leveret.pipeline.errors import BadOption, PipelineError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

Convert = Callable[[Any], object]  # Any: values and messages of a library without types
Found = tuple[pa.DataType, Convert | None]
GOOGLE: Final = "google.protobuf."
STANDARD: Final = "google/protobuf/"  # how names of files begin that the library has
WRAPPERS: Final = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
DYNAMIC: Final = tuple(f"{GOOGLE}{name}" for name in ("Struct", "Value", "ListValue"))
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# `FieldDescriptor.CPPTYPE_*`
KINDS: Final = {
    1: pa.int64(),  # int32
    2: pa.int64(),
    3: pa.int64(),  # uint32
    4: pa.decimal128(20, 0),  # uint64, which no integer of a table holds
    5: pa.float64(),
    6: pa.float64(),  # float
    7: pa.bool_(),
}
ENUM, TEXT, MESSAGE = 8, 9, 10
BYTES: Final = 12  # `FieldDescriptor.TYPE_BYTES`


def require() -> None:
    """Check that protobuf is installed. Raises PipelineError."""
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        raise PipelineError("protobuf is not installed: `pip install 'leveret[decode]'`")


def schema_in(octets: bytes, message: str | None, name: str) -> BodySchema:
    """Return the schema of a message in a set of file descriptors. Raises BadOption.

    Without a name it is the only message of the last file.
    """
    require()
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = FileDescriptorSet.FromString(octets).file
    except DecodeError:
        files = ()
    if not files:
        raise BadOption(
            f"{name} is no set of descriptors, as `protoc --include_imports --descriptor_set_out=FILE X.proto` writes"
        )
    if message is None:
        package = f"{files[-1].package}." if files[-1].package else ""
        known = [f"{package}{each.name}" for each in files[-1].message_type]
        if len(known) != 1:
            raise BadOption(
                f"{name} has the messages {', '.join(known) or 'of no file'}: name one with --message"
            )
        message = known[0]
    return message_schema(files, message, name)


def message_schema(files: Iterable[Any], message: str, name: str) -> BodySchema:
    """Return the schema of a message by its full name. `files` are `FileDescriptorProto`s. Raises BadOption."""
    return described(pool_of(files, name), message, name)


def schema_at(files: Sequence[Any], indexes: Sequence[int], name: str) -> BodySchema:
    """Return the schema of the message to which indexes lead in the last file. Raises Undecodable, BadOption."""
    last = files[-1]
    at, path = last.message_type, [last.package] if last.package else []
    for index in indexes:
        if index >= len(at):
            raise Undecodable(f"{name} has no message at index {index}")
        path.append(at[index].name)
        at = at[index].nested_type
    return message_schema(files, ".".join(path), name)


def pool_of(files: Iterable[Any], name: str) -> Any:
    """Return the library's pool with some files, and those of Google's that they import. Raises BadOption."""
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    waiting = {each.name: each for each in files}

    def add(file: str) -> None:
        each = waiting.pop(file, None)
        if each is None:
            _add_standard(pool, file)
            return
        for dependency in each.dependency:
            add(dependency)
        pool.AddSerializedFile(each.SerializeToString())

    try:
        for file in list(waiting):
            add(file)
    except (TypeError, KeyError, RecursionError) as error:
        raise BadOption(f"{name} is no complete set of descriptors (--include_imports): {error}") from None
    return pool


def _add_standard(pool: Any, file: str) -> None:
    """Add a file that the library itself has, such as that of `Timestamp`, unless it is there."""
    from importlib import import_module

    if file.startswith(STANDARD):
        try:
            module = import_module(file.removesuffix(".proto").replace("/", ".") + "_pb2")
        except ImportError:
            return
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def described(pool: Any, message: str, name: str) -> BodySchema:
    from google.protobuf import message_factory
    from google.protobuf.message import DecodeError

    try:
        descriptor = pool.FindMessageTypeByName(message)
    except KeyError:
        raise BadOption(f"{name} has no message {message}") from None
    kind, convert = record(descriptor, "$", 0)
    made = message_factory.GetMessageClass(descriptor)

    def decode(body: bytes) -> Values:
        found = made()
        try:
            found.ParseFromString(body)
        except DecodeError as error:
            raise Undecodable(f"the body is no {message}: {error}") from None
        if not found.IsInitialized():
            missing = ", ".join(found.FindInitializationErrors())
            raise Undecodable(f"the body is no {message}: it lacks {missing}")
        values = convert(found)
        assert isinstance(values, dict)
        return values

    return BodySchema(f"{message} of {name}", pa.schema(list(kind)), decode)


def record(descriptor: Descriptor, path: str, depth: int) -> tuple[pa.DataType, Convert]:
    """Return the type of a message, and what makes a dictionary of one. Raises BadOption."""
    if depth > DEPTH_MAX:
        raise BadOption(f"the message is more than {DEPTH_MAX} deep at {path}, or contains itself")
    if not descriptor.fields:
        raise BadOption(
            f"the message {descriptor.full_name} at {path} has no fields, so there is no column for it"
        )
    fields = []
    parts = []
    for field in descriptor.fields:
        kind, convert = _field(field, f"{path}.{field.name}", depth)
        fields.append(pa.field(field.name, kind))
        parts.append((field.name, field.has_presence, convert))

    def values(message: Any) -> object:
        found = {}
        for name, has_presence, convert in parts:
            if has_presence and not message.HasField(name):
                continue
            value = getattr(message, name)
            found[name] = value if convert is None else convert(value)
        return found

    return pa.struct(fields), values


def _field(field: FieldDescriptor, path: str, depth: int) -> Found:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        of, convert = _one(kind.fields_by_name["value"], f"{path}.*", depth)
        is_text = kind.fields_by_name["key"].cpp_type == TEXT
        return pa.map_(pa.string(), of), lambda found: [
            (key if is_text else str(key).lower(), each if convert is None else convert(each))
            for key, each in found.items()
        ]
    of, convert = _one(field, path, depth)
    if not _is_repeated(field):
        return of, convert
    if convert is None:
        return pa.list_(of), list
    return pa.list_(of), lambda found: [convert(each) for each in found]


def _is_repeated(field: FieldDescriptor) -> bool:
    # Newer versions of the library warn of `label`.
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == 3)


def _one(field: FieldDescriptor, path: str, depth: int) -> Found:
    """Return the type of one value of a field."""
    if field.cpp_type == ENUM:
        names: Mapping[int, str] = {each.number: each.name for each in reversed(field.enum_type.values)}
        return pa.string(), lambda number: names.get(number, str(number))
    if field.cpp_type == TEXT:
        return (pa.binary() if field.type == BYTES else pa.string()), None
    if field.cpp_type != MESSAGE:
        return KINDS[field.cpp_type], None
    return _message(field.message_type, path, depth)


def _message(descriptor: Descriptor, path: str, depth: int) -> Found:
    name = descriptor.full_name
    if name == f"{GOOGLE}Timestamp":
        return TIME, _time
    if name in DYNAMIC:
        return JSON_TEXT, _json
    if name.removeprefix(GOOGLE).removesuffix("Value") in WRAPPERS and name.startswith(GOOGLE):
        kind, _ = _one(descriptor.fields_by_name["value"], path, depth)
        return kind, lambda found: found.value
    return record(descriptor, path, depth + 1)


def _time(found: Any) -> object:
    try:
        return EPOCH + timedelta(seconds=found.seconds, microseconds=found.nanos // 1000)
    except OverflowError:
        raise Undecodable(f"the time of {found.seconds} seconds since 1970 is no timestamp") from None


def _json(found: Any) -> object:
    from google.protobuf.json_format import MessageToJson

    return MessageToJson(found, indent=None)
