"""Every route of the HTTP endpoint: who may ask, where, and what it needs.

A row (rows.py) has a request that does what the route is for; `{names}` in the path are filled in from NAMES. Those of
RabbitMQ's API are in management_routes.py and listing_routes.py.
"""

from __future__ import annotations

from typing import Final

from .listing_routes import LISTING
from .management_routes import MANAGEMENT
from .rows import READ, WRITE, Row

NAMES: Final = {
    "vhost": "%2F",
    "exchange": "x",
    "queue": "q",
    "reader": "r",
    "batch": "0",
    "partition": "0",
    "attempt": "0",
    "xid": "1-61-31",
    "node": "leveret",
    "id": "00000000",  # of no link
    "user": "bob",
    "component": "vhost-limits",
    "within": "1",
    "unit": "days",
    "port": "5672",
    "protocol": "amqp091",
}

BATCH: Final = b"a batch of messages"  # stands for what bulk publishing sends
SUPER: Final = "/api/leveret/super-streams/{vhost}/{name}"
STREAM: Final = "/api/leveret/streams/{vhost}"
STAGING: Final = "/api/leveret/staging/{vhost}/{name}"
LEASE: Final = "/api/leveret/leases/{vhost}/{queue}/{reader}"
BRANCH: Final = "/api/leveret/branches/{vhost}/{xid}"

LEASES: Final = "/api/leveret/leases/%2F/q/r"
STAGED: Final = "/api/leveret/staging/%2F/job"
READS: Final = ((READ, "q"),)
POSITION: Final = {"source": "s", "partition": 0, "position": 0, "behind": 0}
FENCE: Final = "fence={fence}"

OURS: Final[dict[str, Row]] = {
    "GET /": Row("anybody"),
    "GET /api/leveret/health": Row("anybody"),
    "GET /api/leveret/status": Row("management"),
    "POST /api/leveret/reload": Row("administrator"),
    "GET /api/leveret/plugins": Row("monitoring"),
    "POST /api/leveret/plugins/reload": Row("administrator"),
    "GET /api/leveret/log": Row("monitoring"),
    "GET /api/leveret/log/lines": Row("administrator", otherwise=404),  # a broker without a process has none
    "PUT /api/leveret/log/level/{level}": Row("administrator", target="/api/leveret/log/level/info"),
    "GET /api/leveret/logins": Row("monitoring"),
    "DELETE /api/leveret/logins": Row("administrator"),
    "GET /api/leveret/explain": Row("monitoring", query="exchange=x&key=k"),
    "GET /api/leveret/recordings": Row("administrator"),
    "PUT /api/leveret/recordings/{vhost}": Row("administrator", otherwise=400),  # this broker makes none
    "DELETE /api/leveret/recordings/{vhost}": Row("administrator", otherwise=400),
    "PUT /api/leveret/replays/{vhost}": Row("administrator", target="/api/leveret/replays/new"),
    "POST /api/leveret/replays/{vhost}": Row("administrator", body=b"some of it", otherwise=404),
    "DELETE /api/leveret/replays/{vhost}": Row("administrator", otherwise=404),
    "GET /api/leveret/kept": Row("monitoring"),
    "GET /api/leveret/kept/{protocol}/{list}": Row(
        "monitoring", target="/api/leveret/kept/amqp091/none", otherwise=404
    ),
    "GET /api/leveret/kept/{protocol}/{list}/{vhost}": Row(
        "monitoring", target="/api/leveret/kept/amqp091/none/%2F", otherwise=404
    ),
    "GET /api/leveret/kept/{protocol}/{list}/{vhost}/{name}": Row(
        "monitoring", target="/api/leveret/kept/amqp091/none/%2F/one", otherwise=404
    ),
    "GET /api/leveret/kept/{protocol}/{list}/{vhost}/{name}/message": Row(
        "administrator", target="/api/leveret/kept/amqp091/none/%2F/one/message", otherwise=404
    ),
    "DELETE /api/leveret/kept/{protocol}/{list}/{vhost}/{name}": Row(
        "administrator", target="/api/leveret/kept/amqp091/none/%2F/one", otherwise=404
    ),
    "GET /ui/{file}": Row("anybody", target="/ui/style.css"),
    "GET /ui/app/{file}": Row("anybody", target="/ui/app/main.js"),
    "GET /ui/app/views/{file}": Row("anybody", target="/ui/app/views/overview.js"),
    "GET /ui/{version}/{file}": Row("anybody", target="/ui/0/style.css"),
    "GET /ui/{version}/app/{file}": Row("anybody", target="/ui/0/app/main.js"),
    "GET /ui/{version}/app/views/{file}": Row("anybody", target="/ui/0/app/views/overview.js"),
}
BULK: Final[dict[str, Row]] = {
    f"GET {STREAM}": Row("user", "nobody"),
    f"GET {STREAM}/{{name}}": Row("user", "nobody", ((READ, "s"),), name="s"),
    f"GET {STREAM}/{{name}}/offset": Row("user", "nobody", ((READ, "s"),), name="s", query="timestamp=0"),
    f"GET {STREAM}/{{name}}/blocks": Row("user", "nobody", ((READ, "s"),), name="s", query="from=0"),
    f"GET {STREAM}/{{name}}/readers": Row("user", "nobody", ((READ, "s"),), name="s"),
    f"PUT {SUPER}": Row("administrator", name="new", query="partitions=2"),
    f"DELETE {SUPER}": Row("administrator", name="super"),
    f"GET {STAGING}": Row("user", "nobody", name="job"),
    f"POST {STAGING}/{{batch}}/{{partition}}/{{attempt}}": Row(
        "user", "nobody", ((WRITE, "x"),), BATCH, target=f"{STAGED}/1/0/0?piece=0"
    ),
    f"POST {STAGING}/{{batch}}/commit": Row("user", "nobody", (), {"parts": [[0, 0, 1]]}, name="job"),
    f"DELETE {STAGING}/{{batch}}": Row("user", "nobody", name="job"),
    f"DELETE {STAGING}": Row("user", "nobody", name="job"),
    "POST /api/leveret/publish/{vhost}": Row("user", "nobody", ((WRITE, "x"),), BATCH),
    "GET /api/leveret/leases/{vhost}": Row("user", "nobody"),
    f"PUT {LEASE}": Row("user", "nobody", READS),
    f"GET {LEASE}": Row("user", "nobody", READS),
    f"DELETE {LEASE}": Row("user", "nobody", READS),
    f"POST {LEASE}/reserve": Row("user", "nobody", READS, query=f"{FENCE}&from=0"),
    f"POST {LEASE}/settle": Row("user", "nobody", READS, query=f"{FENCE}&to=0"),
    f"POST {LEASE}/release": Row("user", "nobody", READS, query=FENCE),
    f"GET {LEASE}/blocks": Row("user", "nobody", READS, target=f"{LEASES}/blocks?from=0&until=1"),
    "GET /api/leveret/pipelines": Row("user"),
    "GET /api/leveret/pipelines/{vhost}": Row("user", "nobody"),
    "PUT /api/leveret/pipelines/{vhost}/{name}": Row(
        "user", "nobody", ((READ, "s"),), {"batch": 0, "rows": 0, "partitions": [POSITION]}, name="lake"
    ),
    "DELETE /api/leveret/pipelines/{vhost}/{name}": Row("user", "nobody", name="gone", otherwise=404),
    "GET /api/leveret/branches/{vhost}": Row("user", "nobody"),
    f"POST {BRANCH}/commit": Row("user", "nobody"),
    f"POST {BRANCH}/rollback": Row("user", "nobody"),
    f"DELETE {BRANCH}": Row("user", "nobody", target="/api/leveret/branches/%2F/1-62-31"),
}
ROWS: Final = {**OURS, **BULK, **MANAGEMENT, **LISTING}
