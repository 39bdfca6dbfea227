"""Shovels: their parameter, their ends, what they promise."""
