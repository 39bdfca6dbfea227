"""Write the map in docs/architecture.md: the first line of each module, by the wings and rooms of the source.

    python scripts/map.py

What stands between the two marks of the page is written anew; people write what is around it.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs/architecture.md"
BEGIN: Final = "<!-- The map begins: `make docs` writes it. -->\n"
END: Final = "<!-- The map ends. -->\n"


def wings() -> dict[str, str]:
    """Return the names of packages, by the folders that have them, in the order of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {folder: name for name, folder in project["tool"]["setuptools"]["package-dir"].items()}


def first_line(path: Path) -> str:
    """Return the first line of a module's docstring, as a cell of a table."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return text.partition("\n")[0].replace("|", "\\|")


def rooms(folder: Path) -> Iterator[Path]:
    """Yield a folder and those below it that have modules, in order."""
    if any(folder.glob("*.py")):
        yield folder
    for each in sorted(folder.iterdir()):
        if each.is_dir() and each.name != "__pycache__":
            yield from rooms(each)


def modules(room: Path) -> list[Path]:
    return sorted(path for path in room.glob("*.py") if path.name != "__init__.py")


def wing(folder: str, name: str) -> Iterator[str]:
    """Yield the lines about one wing."""
    top = ROOT / folder
    yield f"### `{folder}/`, installed as `{name}`\n"
    yield f"{first_line(top / '__init__.py')}\n"
    for room in rooms(top):
        if room != top:
            about = first_line(room / "__init__.py") if (room / "__init__.py").exists() else ""
            yield f"**`{room.relative_to(ROOT)}/`** {about}\n".replace(" \n", "\n")
        if modules(room):
            yield "| Module | |\n|---|---|"
            yield from (f"| `{path.name}` | {first_line(path)} |" for path in modules(room))
            yield ""


def written(page: str) -> str:
    """Return the page with the map as it is now."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    lines = [line for folder, name in wings().items() for line in wing(folder, name)]
    return head + BEGIN + "\n" + "\n".join(lines) + "\n" + END + tail


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
