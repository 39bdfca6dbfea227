"""What takes long and finds seldom: `make rest` runs it, after `make test`, and so does the build server."""

from __future__ import annotations

import pytest

# It is a check of checks: a mistake is planted in the node, and the tests beside this one have to find it.
planted = pytest.mark.seldom("it fails when the tests beside it are changed, and not by a fault of the node")
# One place, seed or number of a claim is in `make test`.
elsewhere = pytest.mark.seldom("it is the claim of the tests beside it, at another place")
# `make check` runs it when one of these files is changed.
packing = pytest.mark.seldom(
    "it fails when what packs and sets up is changed: setup.py, pyproject.toml, scripts/"
)
