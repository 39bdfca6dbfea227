"""Objects that are in files which a node reads at each start, and which of them clients have changed since.

The configuration file and the files of `definitions.load` put what they name in place at each start. A change of such
an object holds until then, and the answer to the change says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leveret.arguments.names import shown
from leveret.catalogue import (
    OPERATOR_POLICY,
    PARAMETER,
    PERMISSIONS,
    POLICY,
    SHOVEL,
    TOPIC_PERMISSIONS,
    UPSTREAM,
    UPSTREAM_SET,
    USER,
    VIRTUAL_HOST,
)

CONFIGURATION: Final = "the configuration file"
# Kinds that are never in the configuration file. Those that are deleted come back; the rest of them stays as it is.
QUEUE: Final = "queue"  # virtual host, name
EXCHANGE: Final = "exchange"  # virtual host, name
BINDING: Final = "binding"  # virtual host, source, the rest in words

# By kind: how an object is called, given its names.
WORDS: Final = {
    USER: "user '{}'",
    PERMISSIONS: "permissions of user '{}' in vhost '{}'",
    TOPIC_PERMISSIONS: "topic permissions of user '{}' in vhost '{}' for exchange '{}'",
    VIRTUAL_HOST: "vhost '{}'",
    POLICY: "policy '{1}' in vhost '{0}'",
    OPERATOR_POLICY: "operator policy '{1}' in vhost '{0}'",
    PARAMETER: "global parameter '{}'",
    SHOVEL: "shovel '{1}' in vhost '{0}'",
    UPSTREAM: "upstream '{1}' in vhost '{0}'",
    UPSTREAM_SET: "set of upstreams '{1}' in vhost '{0}'",
    QUEUE: "queue '{1}' in vhost '{0}'",
    EXCHANGE: "exchange '{1}' in vhost '{0}'",
    BINDING: "binding from exchange '{1}' in vhost '{0}' to {2}",
}


def binding_words(is_exchange: bool, destination: str, key: str) -> str:
    """Return the last name of a binding."""
    return f"{'exchange' if is_exchange else 'queue'} '{shown(destination)}' with the key '{shown(key)}'"


class FileObjects:
    """The objects of a node's files, each with its file, and those of them that clients have changed."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, ...], dict[str, str]] = {}  # by the kind and all names but the last
        self._changed: dict[tuple[str, ...], str] = {}

    def add(self, file: str, kind: str, *names: str) -> None:
        """Note that a file has put an object in place. Of two files that name it, the last holds."""
        self._files.setdefault((kind, *names[:-1]), {})[names[-1]] = file

    def forget(self, file: str) -> None:
        """Forget the objects of a file, and that they were changed; it has just been read anew."""
        for there in self._files.values():
            for name in [name for name, whose in there.items() if whose == file]:
                del there[name]
        for key in [key for key, whose in self._changed.items() if whose == file]:
            del self._changed[key]

    def change(self, kind: str, *names: str) -> str:
        """Note that a client has changed or deleted an object. Return its file; empty if it is in none."""
        file = self._files.get((kind, *names[:-1]), {}).get(names[-1], "")
        if file:
            self._changed[kind, *names] = file
        return file

    def warnings(self, kind: str, *names: str) -> list[str]:
        """Return the warning of an object that was changed; none if it is as its file has it."""
        file = self._changed.get((kind, *names))
        return [f"the change holds until restart; {file} says otherwise"] if file else []

    def changed(self) -> Iterator[tuple[str, str]]:
        """Yield each changed object, in words, and its file."""
        for (kind, *names), file in self._changed.items():
            yield WORDS[kind].format(*map(shown, names)), file
