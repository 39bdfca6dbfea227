"""Build Leveret: modules in pyproject.toml's `[tool.leveret]` are compiled with mypyc, from the same `.py` files.

    LEVERET_COMPILE=auto     the default: compile where there is a C compiler with Python's headers, else stay plain
    LEVERET_COMPILE=never    install plain Python
    LEVERET_COMPILE=always   fail where it cannot be compiled

    LEVERET_HOME=https://...  where a release is hosted: the links of the README, and of an index's page, lead there

The outcome is written into `leveret/built.txt` beside the code, for `leveret --version`
(`server/node/build_info.py`). An editable install is always plain, and nothing is ever compiled into the source
tree: a compiled module that lies beside its `.py` file would be imported instead of it, whatever is edited afterwards.

Folders of the repository are one package where they are installed (`[tool.setuptools.package-dir]`). mypyc, mypy and
import-linter have to see it as such, too: `python setup.py link` makes build/linked, a tree of links to the folders.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Extension, find_namespace_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
MODES = ("auto", "always", "never")
MODE = os.environ.get("LEVERET_COMPILE") or "auto"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LISTED = PROJECT["tool"]["leveret"]["compiled"]
FOLDERS = PROJECT["tool"]["setuptools"]["package-dir"]  # by the names of their packages
LINKED = ROOT / "build/linked"
BUILT = "leveret/built.txt"
SITE = ROOT / "build/site/html"  # made by `make site`
HANDBOOK = "leveret/handbook"  # where `leveret docs` finds it
GROUP = "leveret.compiled"  # the code of all modules is in leveret/compiled__mypyc
MYPY = "mypy>=2.1,<3"  # requested only where it is needed: it has no wheels for rare machines
# Debug information doubles the time, and is of no use without the C files. Hidden symbols let modules call each
# other without the linker's table.
FLAGS = [] if sys.platform == "win32" else ["-g0", "-fvisibility=hidden", "-Wno-error"]
# Types are checked by `make lint`; a newer mypy that finds more is no reason to install a slower broker.
CHECKS = [
    "--follow-imports=silent",
    "--no-warn-unused-ignores",
    "--no-warn-unreachable",
    "--no-warn-redundant-casts",
]
HOME = os.environ.get("LEVERET_HOME", "").rstrip("/")
# Links and pictures of the README that lead to files of the repository.
LOCAL = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")
PROBE = "#include <Python.h>\nint probe(void) { return PY_VERSION_HEX; }\n"


def missing() -> str | None:
    """Return what this machine lacks for compiling, found by trying a C compiler with Python's headers."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    includes = [f"-I{sysconfig.get_path(each)}" for each in ("include", "platinclude")]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(PROBE)
        command = [*compiler, *includes, "-c", str(source), "-o", str(source.with_suffix(".o"))]
        try:
            tried = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:
            return "there was no C compiler"
    if tried.returncode == 0:
        return None
    return "there were no headers of Python" if "Python.h" in tried.stderr else "the C compiler did not work"


def reason() -> str | None:
    """Return why this build is plain Python; None if it is to be compiled."""
    if MODE not in MODES:
        raise SystemExit(f"leveret: LEVERET_COMPILE is {MODE!r}; it may be {', '.join(MODES)}")
    if MODE == "never":
        return "LEVERET_COMPILE is never"
    lacking = missing()
    if lacking is not None and MODE == "always":
        raise SystemExit(f"leveret: LEVERET_COMPILE is always, but {lacking}")
    return lacking


def say(text: str) -> None:
    print(f"leveret: {text}", file=sys.stderr, flush=True)


def description() -> str:
    """Return the README for an index, which has no other file: what leads to one leads to HOME, or is text alone."""
    version = runpy.run_path(str(ROOT / "broker_core/version.py"))["VERSION"]
    told = partial(led, version=version) if HOME else r"\2"
    return LOCAL.sub(told, (ROOT / "README.md").read_text())


def led(link: re.Match[str], version: str) -> str:
    picture, text, path = link.groups()
    return f"{picture}[{text}]({HOME}/{'raw' if picture else 'blob'}/v{version}/{path})"


def urls() -> dict[str, str]:
    pages = {"Source": "", "Documentation": "docs/index.md", "Changelog": "CHANGELOG.md"}
    return (
        {name: f"{HOME}/blob/HEAD/{page}" if page else HOME for name, page in pages.items()} if HOME else {}
    )


def note(target: str, how: str) -> None:
    """Write the file that `server/node/build_info.py` reads: the outcome, and which modules would be compiled."""
    modules = [installed(each).removesuffix(".py").replace("/", ".") for each in LISTED]
    Path(target, BUILT).write_text("\n".join([how, *modules, ""]))


def packages() -> list[str]:
    """Return all packages, and the folders with data, by their names when installed."""
    inside = [
        f"{package}.{name}"
        for package, folder in FOLDERS.items()
        for name in find_namespace_packages(str(ROOT / folder), exclude=("__pycache__", "*.__pycache__"))
    ]
    return [*FOLDERS, *inside]


def installed(path: str) -> str:
    """Return where a file of the repository is installed."""
    folder, _, rest = path.partition("/")
    (package,) = [package for package, source in FOLDERS.items() if source == folder]
    return f"{package.replace('.', '/')}/{rest}"


def link() -> None:
    """Make the installed package of links to what is in the repository; what is right already stays."""
    wanted = {}
    for package, folder in FOLDERS.items():
        place = LINKED / package.replace(".", "/")
        if "." in package:
            wanted[place] = ROOT / folder
        else:  # other folders have their links in it
            wanted |= {
                place / each.name: each for each in (ROOT / folder).iterdir() if each.name != "__pycache__"
            }
    for place in {each.parent for each in wanted}:
        place.mkdir(parents=True, exist_ok=True)
        for found in set(place.iterdir()) - wanted.keys():
            found.unlink()
    for place, target in wanted.items():
        aim = os.path.relpath(target, place.parent)
        if not place.is_symlink() or os.readlink(place) != aim:
            place.unlink(missing_ok=True)
            place.symlink_to(aim)


def add_handbook(library: Path) -> None:
    """Copy the handbook's pages, if they have been made and none of docs/ is newer, for `leveret docs`."""
    shutil.rmtree(library / HANDBOOK, ignore_errors=True)
    pages = [str(page) for page in ROOT.glob("docs/**/*.md")]
    if pages and is_fresh(str(SITE / "index.html"), pages):
        shutil.copytree(SITE, library / HANDBOOK)


class Link(Command):
    """Makes build/linked, which has what is installed for those who read the source."""

    user_options: ClassVar[list[tuple[str, str, str]]] = []

    def initialize_options(self) -> None: ...

    def finalize_options(self) -> None: ...

    def run(self) -> None:
        link()


class Copy(build_py):
    """Copies the Python files, and notes beside them how they were built."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        add_handbook(Path(self.build_lib))
        if WHY is None:
            note(self.build_lib, "compiled")
            return
        say(f"building plain Python, several times slower: {WHY}")
        note(self.build_lib, f"{WHY} when it was built")


class Compile(build_ext):
    """Has mypyc write C if there is something to build, and compiles all files in parallel."""

    def run(self) -> None:
        self.extensions = []
        if self.inplace or self.editable_mode:
            return
        self._forget()
        try:
            self.distribution.ext_modules = self._translated()
            self.initialize_options()
            self.finalize_options()  # takes over the new extensions
            super().run()
        except (Exception, SystemExit) as error:  # mypyc ends the program when it cannot translate a module
            if MODE == "always":
                raise
            self._forget()
            why = "mypyc refused a module" if isinstance(error, SystemExit) else str(error).splitlines()[0]
            say(f"building plain Python, several times slower: compiling failed: {why}")
            note(self.build_lib, "compiling failed when it was built")

    def get_outputs(self) -> list[str]:
        return [str(path) for path in self._made()]

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def _made(self) -> list[Path]:
        return sorted(Path(self.build_lib).rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"))

    def _forget(self) -> None:
        """Delete the compiled modules of an earlier build, which would be installed: their source may have changed."""
        for path in self._made():
            path.unlink()

    def _translated(self) -> list[Extension]:
        from mypyc.build import mypycify

        say(f"compiling {len(LISTED)} modules, about a minute")
        os.makedirs(self.build_temp, exist_ok=True)
        link()
        extensions = mypycify(
            [*CHECKS, *(str(LINKED.relative_to(ROOT) / installed(each)) for each in LISTED)],
            opt_level="2",
            multi_file=True,
            group_name=GROUP,
            target_dir=self.build_temp,
        )
        for extension in extensions:
            extension.extra_compile_args += FLAGS
            # of its own headers
            extension.include_dirs.append(os.path.join(self.build_temp, *GROUP.split(".")[:-1]))
        return extensions

    def build_extensions(self) -> None:
        self.parallel = os.cpu_count()
        self.compiler.compile = partial(at_once, self.compiler, self.compiler.compile)
        super().build_extensions()


def at_once(compiler, compile_, sources, output_dir=None, depends=None, **options):
    """Run `compiler.compile` for many files: as many at a time as there are cores, and only those that have changed."""

    def one(source: str) -> list[str]:
        objects = compiler.object_filenames([source], output_dir=output_dir)
        if all(is_fresh(each, [source, *(depends or ()), *SETTINGS]) for each in objects):
            return objects
        return compile_([source], output_dir=output_dir, **options)

    # The largest first, so that no long one begins last.
    largest = sorted(sources, key=os.path.getsize, reverse=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = dict(zip(largest, pool.map(one, largest), strict=True))
    return [each for source in sources for each in objects[source]]


def is_fresh(made: str, sources: list[str]) -> bool:
    return os.path.exists(made) and os.path.getmtime(made) > max(map(os.path.getmtime, sources))


SETTINGS = [__file__, str(ROOT / "pyproject.toml")]
WHY = reason()
# mypyc reads the types of modules that are not compiled, too: what they import has to be installed.
NEEDED = [] if WHY or find_spec("mypyc") else [MYPY, *PROJECT["project"]["dependencies"]]
PLACEHOLDER = Extension(f"{GROUP}__mypyc", [])  # tells setuptools early that a wheel is for one platform

setup(
    long_description=description(),
    long_description_content_type="text/markdown",
    project_urls=urls(),
    packages=packages(),
    cmdclass={"build_py": Copy, "build_ext": Compile, "link": Link},
    ext_modules=[] if WHY else [PLACEHOLDER],
    setup_requires=NEEDED,
)
