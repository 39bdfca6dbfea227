"""Topology as code: a file describes the objects that a node should have; plans, applies and lints it.

file (TOML, or definitions as JSON) -> reader -> Topology
node -> live -> Topology
two of them -> plan -> changes -> requests
one of them -> lint -> findings
"""
