#!/usr/bin/env bash
# Builds build/compiled: the packages with their hot modules compiled, as `pip install .` would install them. Whoever
# has it first on the path runs it in place of the source folder:
#   PYTHONPATH=build/compiled .venv/bin/leveret serve
# Without a C compiler it fails; with LEVERET_COMPILE=auto it makes a plain copy (see setup.py).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

FOLDER=build/compiled
LOG=build/compiled.log

mkdir -p "$FOLDER"
find "$FOLDER" -name '*.py' -delete # what the source folder has no more must not be found here
LEVERET_COMPILE="${LEVERET_COMPILE:-always}" .venv/bin/python -W ignore setup.py -q build --build-lib "$FOLDER" 2>&1 | tee "$LOG" | grep --line-buffered '^leveret: ' >&2
status=${PIPESTATUS[0]}
[ "$status" = 0 ] || cat "$LOG" >&2
exit "$status"
