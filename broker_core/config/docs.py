"""Prints docs/configuration.md from the records of the configuration: keys, accepted values, defaults, variables.

`python -m leveret.config.docs` prints the page.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

from leveret.config.compat import Compat
from leveret.config.config import PREFIX, Config
from leveret.config.records import UNSET, Key, Record, RecordOf, keys_of, written
from leveret.config.sections import CompatSettings
from leveret.config.types import Kind, ListOf, TableOf

INTRODUCTION = """\
<!-- Printed by `python -m leveret.config.docs` (or `make docs`); edit broker_core/config/ instead. -->

# Configuration

Leveret reads one [TOML](https://toml.io) file: `leveret serve --config leveret.toml`. Every key has a default, and
without a file a node serves every enabled protocol on 127.0.0.1:5672 and [::1]:5672.

* `leveret check leveret.toml` reads the file, then the plug-ins and definitions that it names, and prints everything
  that is wrong.
* An environment variable overrides a key of the file: `LEVERET_`, then the key's path in capitals with two underscores
  for each dot, as in `LEVERET_PROTOCOLS__AMQP091__FRAME_MAX=64KiB`. Strings need no quotes, a list may be written with
  commas (`LEVERET_PLUGINS__DISABLED=x-random,x-modulus-hash`), lists of tables as in the file.
* Flags of `leveret serve` override both.
* Sizes are numbers of bytes or strings with a unit: B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (of 1024).
* Relative file names start at the folder of the file.
* A running node takes new values of the keys marked "reload" at `leveret reload` or SIGHUP; it says which other keys
  have changed and need a restart.
* Where brokers and specifications differ, `[compat]` decides; [Compatibility](compatibility.md) compares its profiles.
"""


def documentation() -> str:
    """Return the whole page, in Markdown."""
    return "\n".join([INTRODUCTION, *_sections(Config, "", {})])


def _sections(
    record: type[Record], path: str, told: dict[type[Record], str], repeated: bool = False
) -> Iterator[str]:
    """Yield the sections of a record. `repeated`: the record can occur several times, so that it has no variables.

    `told` has the headings of records that were documented before; what occurs again refers to them.
    """
    for name, known in keys_of(record).items():
        inner = _record_in(known.kind)
        if inner is None or known.rest:
            continue
        repeats = repeated or not isinstance(known.kind, RecordOf)
        heading = _heading(f"{path}{name}", known)
        if inner in told:
            yield f"## `{heading}`\n"
            yield f"{known.doc} The keys are those of [`{told[inner]}`](#{_anchor(told[inner])}).\n"
            if not repeats:
                yield _variables(f"{path}{name}")
            continue
        told[inner] = heading
        yield from _section(inner, f"{path}{name}", known, repeats)
        yield from _sections(inner, f"{heading.strip('[]')}.", told, repeats)


def _section(record: type[Record], path: str, known: Key, repeats: bool) -> Iterator[str]:
    repeated = isinstance(known.kind, ListOf)
    yield f"## `[[{path}]]`\n" if repeated else f"## `{_heading(path, known)}`\n"
    yield f"{inspect.cleandoc(record.__doc__ or '')}\n"
    if repeated and known.reload:
        yield "A running node takes a new list (reload).\n"
    keys = [key for key in keys_of(record).values() if key.rest or not isinstance(key.kind, RecordOf)]
    if record is CompatSettings:  # its further keys are the rows of `Compat`
        keys = [*(key for key in keys if not key.rest), *keys_of(Compat).values()]
    if keys:
        yield "| Key | Accepted | Default | |"
        yield "|---|---|---|---|"
        yield from (documented_key(key) for key in keys)
        yield ""
    if not repeats and keys:
        yield _variables(path)


def _variables(path: str) -> str:
    """Return the line with the environment variables of a table."""
    return f"Environment: `{PREFIX}{path.replace('.', '__').upper()}__…`\n"


def _anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site make it."""
    return "".join(letter for letter in heading.lower() if letter.isalnum() or letter == "_")


def _heading(path: str, known: Key) -> str:
    """Return the heading; a table with free names shows them as NAME."""
    kind: Kind[object] = known.kind
    while isinstance(kind, TableOf):
        path += ".NAME"
        kind = kind.item
    return f"[{path}]"


def documented_key(key: Key) -> str:
    name = "any other" if key.rest else f"`{key.name}`"
    doc = f"{key.doc} *reload*" if key.reload else key.doc
    return f"| {name} | {_cell(key.kind.accepted)} | {_default(key)} | {_cell(doc)} |"


def _default(key: Key) -> str:
    if key.default is UNSET:
        return "required"
    if isinstance(key.default, Record):
        return f"`{written(key.default)}`"
    if not key.default and key.default != 0 and key.default is not False:
        shown = key.kind.shown(key.default) if key.default is None else ""
        return f"`{shown}`" if shown else "none"
    return f"`{_cell(key.kind.shown(key.default))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _record_in(kind: Kind[object]) -> type[Record] | None:
    """Return the record that a table, a list of tables or a table of tables holds."""
    while isinstance(kind, ListOf | TableOf):
        kind = kind.item
    return kind.record if isinstance(kind, RecordOf) else None


if __name__ == "__main__":
    sys.stdout.write(documentation())
