"""Topology as code: a file that says what a node should have, what would change, what is done, what is wrong with it.

file (TOML, or definitions as JSON) -> reading -> Topology
node -> live -> Topology
planning: two of them -> changes -> applying
linting: one of them -> findings
"""
