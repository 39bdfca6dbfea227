"""The rows for what RabbitMQ's API lists, makes and deletes; http_routes.py tells what a row says."""

from __future__ import annotations

from typing import Final

from .rows import CONFIGURE, READ, WRITE, Row

OWN: Final = "127.0.0.1:2 -> 127.0.0.1:5672".replace(" ", "%20").replace(">", "%3E")
OTHERS: Final = OWN.replace(":2", ":1")
TO_QUEUE: Final = "/api/bindings/{vhost}/e/{source}/q/{destination}"
TO_EXCHANGE: Final = "/api/bindings/{vhost}/e/{source}/e/{destination}"
FROM_X: Final = "/api/bindings/%2F/e/x"
BINDING: Final = {"routing_key": "new", "arguments": {}}
BOUND_QUEUE: Final = ((WRITE, "q"), (READ, "x"))
BOUND_EXCHANGE: Final = ((WRITE, "y"), (READ, "x"))
EXCHANGE: Final = "/api/exchanges/{vhost}/{name}"
QUEUE: Final = "/api/queues/{vhost}/{name}"


def seen(target: str) -> Row:
    """Shown to those who may enter the virtual host, and to those who monitor."""
    return Row("management", "monitoring", target=target)


def changed(target: str, *needs: tuple[str, str], body: object = None) -> Row:
    """Permissions decide, and nothing else: of administrators, too."""
    return Row("management", "nobody", needs, body, target=target)


WHO: Final[dict[str, Row]] = {
    "GET /api/overview": Row("management"),
    "GET /api/nodes": Row("monitoring"),
    "GET /api/nodes/{name}": Row("monitoring", target="/api/nodes/leveret"),
    "GET /api/nodes/{name}/memory": Row("monitoring", target="/api/nodes/leveret/memory"),
    "GET /api/connections": Row("management"),
    "GET /api/connections/{name}": Row("management", target=f"/api/connections/{OWN}"),
    "DELETE /api/connections/{name}": Row("management", target=f"/api/connections/{OWN}"),
    "GET /api/connections/username/{user}": Row("management", target="/api/connections/username/u"),
    "DELETE /api/connections/username/{user}": Row("management", target="/api/connections/username/u"),
    "GET /api/vhosts/{vhost}/connections": seen("/api/vhosts/%2F/connections"),
    "GET /api/channels": Row("management"),
    "GET /api/channels/{name}": Row("management", target=f"/api/channels/{OWN}%20%281%29"),
    "GET /api/vhosts/{vhost}/channels": seen("/api/vhosts/%2F/channels"),
    "GET /api/connections/{name}/channels": Row("management", target=f"/api/connections/{OWN}/channels"),
    "GET /api/leveret/channels/{name}/deliveries": Row(
        "management", target=f"/api/leveret/channels/{OWN}%20%281%29/deliveries"
    ),
    "PUT /api/leveret/channels/{name}/deliveries/{tag}/renew": Row(
        "management", target=f"/api/leveret/channels/{OWN}%20%281%29/deliveries/all/renew", otherwise=404
    ),
    "GET /api/consumers": Row("management"),
    "GET /api/consumers/{vhost}": seen("/api/consumers/%2F"),
}
TOPOLOGY: Final[dict[str, Row]] = {
    "GET /api/exchanges": Row("management"),
    "GET /api/exchanges/{vhost}": seen("/api/exchanges/%2F"),
    f"GET {EXCHANGE}": seen("/api/exchanges/%2F/x"),
    f"PUT {EXCHANGE}": changed("/api/exchanges/%2F/new", (CONFIGURE, "new"), body={"type": "direct"}),
    f"DELETE {EXCHANGE}": changed("/api/exchanges/%2F/y", (CONFIGURE, "y")),
    f"GET {EXCHANGE}/bindings/source": seen("/api/exchanges/%2F/x/bindings/source"),
    f"GET {EXCHANGE}/bindings/destination": seen("/api/exchanges/%2F/x/bindings/destination"),
    "GET /api/queues": Row("management"),
    "GET /api/queues/detailed": Row("management"),
    "GET /api/queues/{vhost}": seen("/api/queues/%2F"),
    f"GET {QUEUE}": seen("/api/queues/%2F/q"),
    f"PUT {QUEUE}": changed("/api/queues/%2F/new", (CONFIGURE, "new"), body={"durable": True}),
    f"DELETE {QUEUE}": changed("/api/queues/%2F/q", (CONFIGURE, "q")),
    f"GET {QUEUE}/bindings": seen("/api/queues/%2F/q/bindings"),
    "GET /api/bindings": Row("management"),
    "GET /api/bindings/{vhost}": seen("/api/bindings/%2F"),
    f"GET {TO_QUEUE}": seen(f"{FROM_X}/q/q"),
    f"POST {TO_QUEUE}": changed(f"{FROM_X}/q/q", *BOUND_QUEUE, body=BINDING),
    f"GET {TO_QUEUE}/{{properties}}": seen(f"{FROM_X}/q/q/k"),
    f"DELETE {TO_QUEUE}/{{properties}}": changed(f"{FROM_X}/q/q/k", *BOUND_QUEUE),
    f"GET {TO_EXCHANGE}": seen(f"{FROM_X}/e/y"),
    f"POST {TO_EXCHANGE}": changed(f"{FROM_X}/e/y", *BOUND_EXCHANGE, body=BINDING),
    f"GET {TO_EXCHANGE}/{{properties}}": seen(f"{FROM_X}/e/y/k"),
    f"DELETE {TO_EXCHANGE}/{{properties}}": changed(f"{FROM_X}/e/y/k", *BOUND_EXCHANGE),
}
LISTING: Final = {**WHO, **TOPOLOGY}
