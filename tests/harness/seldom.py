"""What takes long and finds seldom: `make rest` runs it, after `make test`, and so does the build server."""

from __future__ import annotations

import pytest

# It is a check of checks: a mistake is planted in the node, and the tests beside this one have to find it.
planted = pytest.mark.seldom("it fails when the tests beside it are changed, and not by a fault of the node")
# One place, seed or number of a claim is in `make test`.
elsewhere = pytest.mark.seldom("it is the claim of the tests beside it, at another place")
# `make test` kills a node under the load of all that nodes promise (`tests/crash/test_kill.py`).
one_feature = pytest.mark.seldom("it kills a node again and again under the load of one feature")
# Reading and writing with a real Spark is in `make test`.
spark_jobs = pytest.mark.seldom("a real Spark takes minutes for what the tests beside these try without one")
spark_cluster = pytest.mark.seldom(
    "a cluster takes minutes, and finds what only the packing for its executors breaks"
)
spark_killed = pytest.mark.seldom("it takes minutes, and kills once more what other tests of these kill")
# `make check` runs it when one of these files is changed.
packing = pytest.mark.seldom(
    "it fails when what packs and sets up is changed: setup.py, pyproject.toml, scripts/"
)
# `make check` runs it when a page is changed.
handbook = pytest.mark.seldom(
    "it fails when a page of the handbook, or what makes a site of them, is changed"
)
# The views of the page are looked at by the tests beside these, and answers by those of the HTTP API.
clicks = pytest.mark.seldom(
    "it fails when the page is changed, and has a browser do what the tests beside these do, the longer way"
)
looks = pytest.mark.seldom("it fails when the page is changed, and has a browser look at all of it")
# What they use of a node is tried by the tests of pipelines and of the fixture.
examples = pytest.mark.seldom(
    "it fails when an example or the libraries that it shows are changed, and starts a program that imports these"
)
# What the recipes use of a node is tried by the clients that they are made of.
recipes = pytest.mark.seldom(
    "it fails when a page or the frameworks are changed, and starts a pytest for each of them"
)
