"""Building blocks for the generators of code from the published specifications: Python names for XML names, and code
laid out as the formatter would."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

NAMESPACE: Final = "{http://www.amqp.org/schema/amqp.xsd}"


def class_name(name: str) -> str:
    return name.replace(".", " ").replace("-", " ").title().replace(" ", "")


def constant_name(name: str) -> str:
    return name.replace("-", "_").replace(":", "_").upper()


def quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def names(head: str, quoted: list[str]) -> list[str]:
    """Return the lines of a tuple of names, with a line for each name if there are several."""
    if len(quoted) < 2:
        return [f"{head} ({quoted[0]},)" if quoted else f"{head} ()"]
    return [f"{head} (", *indented(quoted, 8, ","), "    )"]


def slots(fields: Iterable[str]) -> list[str]:
    return names("    __slots__ =", sorted(quoted(fields)))


def exports(names: Iterable[str]) -> list[str]:
    return ["__all__ = [", *indented(quoted(names), 4, ","), "]"]


def constructor(parameters: Iterable[str], assignments: Iterable[str]) -> Iterator[str]:
    yield from ("", "    def __init__(", "        self,")
    yield from indented(parameters, 8, ",")
    yield "    ) -> None:"
    yield from indented(assignments, 8)


def indented(lines: Iterable[str], width: int, end: str = "") -> Iterator[str]:
    return (" " * width + line + end for line in lines)


def write(target: Path, code: str, arguments: list[str]) -> int:
    """Write the code. With `--check`, write nothing and return 1 as the exit status if the file differs, 0 if not."""
    if arguments == ["--check"]:
        return int(target.read_text(encoding="utf-8") != code)
    target.write_text(code, encoding="utf-8")
    return 0
