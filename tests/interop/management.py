"""The management API of a node, as tests beside AMQP clients ask it."""

from __future__ import annotations

import json
import urllib.request

from tests.interop.conftest import RunningNode


def asked(node: RunningNode, method: str, path: str, content: object = None) -> object:
    """What the management API of a node in this process answers guest."""
    return asked_at(str(node.call(lambda: node.node.addresses[-1])), method, path, content)


def asked_at(address: str, method: str, path: str, content: object = None) -> object:
    """What the management API at HOST:PORT answers guest."""
    request = urllib.request.Request(f"http://{address}{path}", method=method)
    request.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
    if content is not None:
        request.data = json.dumps(content).encode()
    with urllib.request.urlopen(request, timeout=60) as answer:
        octets = answer.read()
    return json.loads(octets) if octets else None
