"""The own tests of client libraries, run against a node and, where there is one, against RabbitMQ: `make suites`.

Nothing of these libraries is kept in this repository. They are fetched into `build/suites` when this runs: from PyPI,
where a release has its tests, and from their repositories where it has none. What cannot be fetched is taken from a
folder that the variable `SUITES_DIR` names, with a folder for each suite.
"""
