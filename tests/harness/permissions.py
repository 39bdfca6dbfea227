"""What an operation needs, for tables of operations and permissions: a permission, on an exchange or queue."""

from __future__ import annotations

from typing import TypeAlias

CONFIGURE, WRITE, READ = PERMISSIONS = ("configure", "write", "read")
Need: TypeAlias = tuple[str, str, str]  # permission, kind, name


def exchange(permission: str, name: str) -> Need:
    return permission, "exchange", name


def queue(permission: str, name: str) -> Need:
    return permission, "queue", name


def any_of(kind: str, name: str) -> tuple[Need, ...]:
    return tuple((permission, kind, name) for permission in PERMISSIONS)
