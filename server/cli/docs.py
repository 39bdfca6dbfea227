"""`leveret docs`: the handbook in a browser, from the pages that this installation has, without a network.

The pages are served from 127.0.0.1, since browsers do not let pages that are opened as files search. `make site` builds
them; a wheel that is made afterwards contains them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import leveret
from leveret.server.cli.command_parser import Add, Environ
from leveret.server.cli.exit_codes import DONE, REFUSED, failed

PACKAGE: Final = Path(leveret.__file__).parent
INSTALLED: Final = "handbook"  # in the package
BUILT: Final = "build/site/html"  # in a copy of the repository
FIRST: Final = "index.html"
MISSING: Final = (
    "this installation has no pages of the handbook: build them in a copy of the repository with `make site`, or read "
    "docs/index.md there"
)
EXAMPLES: Final = """\
examples:
  leveret docs                                  open the handbook in a browser
  leveret docs streams                          begin with the page docs/streams.md
  leveret docs --no-browser --port 8000         serve it, for a browser that is opened by hand
  leveret docs --print-path                     the folder with the pages
"""


def add_docs(reading: argparse.ArgumentParser, environ: Environ) -> None:
    reading.set_defaults(command=docs)
    reading.epilog = EXAMPLES
    reading.add_argument("page", metavar="PAGE", nargs="?", help="the page to begin with, such as `security`")
    reading.add_argument(
        "--port", type=int, default=0, help="the port on 127.0.0.1 to serve the pages on (default: any)"
    )
    reading.add_argument("--no-browser", action="store_true", help="open no browser")
    reading.add_argument("--print-path", action="store_true", help="print the folder with the pages, and end")


def docs(options: argparse.Namespace, environ: Environ) -> int:
    folder = pages()
    if folder is None:
        return failed(MISSING)
    if options.print_path:
        print(folder)
        return DONE
    page = _page(folder, options.page)
    if page is None:
        return failed(f"there is no page '{options.page}'; `leveret docs` shows all, and has a search")
    return _served(folder, page, options.port, not options.no_browser)


def pages(package: Path = PACKAGE) -> Path | None:
    """Return the folder with the handbook's pages: of the installation, or what was built beside the source."""
    beside = (package.parent / BUILT, package.parents[2] / BUILT)  # of the source, and of build/compiled
    return next((folder for folder in (package / INSTALLED, *beside) if (folder / FIRST).exists()), None)


def _page(folder: Path, name: str | None) -> str | None:
    """Return the file of a page, which may be named as in docs/ or by its last part."""
    if name is None:
        return FIRST
    wanted = name.removeprefix("docs/").removesuffix(".md").removesuffix(".html") + ".html"
    if ".." not in Path(wanted).parts and (folder / wanted).is_file():
        return wanted
    found = sorted(folder.rglob(Path(wanted).name)) if "/" not in wanted else []
    return str(found[0].relative_to(folder)) if found else None


def _served(folder: Path, page: str, port: int, opens: bool) -> int:
    """Serve the pages until Ctrl-C."""
    import webbrowser
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Write nothing: the terminal shows the address."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), partial(Quiet, directory=str(folder)))
    except OSError as error:
        return failed(f"cannot serve the pages on 127.0.0.1:{port}: {error.strerror}")
    with server:
        url = f"http://127.0.0.1:{server.server_address[1]}/{page}"
        print(f"The handbook is at {url}\nCtrl-C ends this.", flush=True)
        if opens and not webbrowser.open(url):
            print("There is no browser here that could be opened: open that address in yours.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return DONE
    return REFUSED


ADD: Final[Mapping[str, Add]] = {"docs": add_docs}
