"""`leveret cluster ...`: show a cluster, have another node serve, check its database, and try one on a laptop."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.server.cli.api_commands import Working, say
from leveret.server.cli.command_parser import Add, Environ, control, parts_of, put
from leveret.server.cli.exit_codes import DONE, REFUSED, failed

if TYPE_CHECKING:
    from leveret.config.config import Config
    from leveret.durable.store.postgres.session import Database
    from leveret.server.cli.api import Api

WAIT_S: Final = 30.0  # for another node to serve
LOOK_S: Final = 0.2
ANSWER_S: Final = 2.0  # for one answer meanwhile
STATUS_EXAMPLES: Final = """\
examples:
  leveret cluster status                          ask a node, over its HTTP endpoint
  leveret cluster status --config leveret.toml    ask the database, when no node answers
"""
FAILOVER_EXAMPLES: Final = """\
examples:
  leveret cluster failover               any node that stands by takes over
  leveret cluster failover --to b
  leveret cluster failover --kill        of `leveret cluster try`: kill the owner under load, and count

Clients of the node that serves are closed, and connect again to any node.
"""
CHECK_EXAMPLES: Final = """\
examples:
  leveret cluster check leveret.toml

Exit codes: 0 everything is as it has to be; 1 something is not.
"""
TRY_EXAMPLES: Final = """\
Needs PostgreSQL's servers, such as of Debian's package postgresql. Everything is in a temporary folder, and goes with
Ctrl-C.
"""


def add_cluster(parser: argparse.ArgumentParser, environ: Environ) -> None:
    actions = parts_of(parser)
    showing = put(actions, "status", "Show the nodes, the one that serves, and the last takeovers.")
    control(showing, environ, show_status, STATUS_EXAMPLES)
    showing.add_argument("--config", metavar="FILE", type=Path, help="ask the database that this file names")
    moving = put(actions, "failover", "Have another node serve.")
    control(moving, environ, fail_over, FAILOVER_EXAMPLES)
    which = moving.add_mutually_exclusive_group()
    which.add_argument("--to", metavar="NODE", default="", help="the node that is to serve (default: any)")
    which.add_argument(
        "--kill", action="store_true", help="of `leveret cluster try`: kill the owner under load"
    )
    checking = put(actions, "check", "Check whether a database can carry a cluster.", CHECK_EXAMPLES)
    checking.set_defaults(command=check)
    checking.add_argument("file", metavar="FILE", type=Path, help="the configuration of a node")
    checking.add_argument("--json", action="store_true", help="print JSON")
    trying = put(actions, "try", "Start two nodes and a PostgreSQL with a standby, to try it.", TRY_EXAMPLES)
    trying.set_defaults(command=try_out)


# Status.


def show_status(options: argparse.Namespace, environ: Environ) -> int:
    if options.config is None:
        return Working(_status_of_node)(options, environ)
    from leveret.durable.store.folder import BadFolder
    from leveret.durable.store.postgres.session import UnreachableError

    config = _configuration(options.config, environ)
    if isinstance(config, str):
        return failed(config)
    from leveret.durable.store.postgres.schema import SHARD
    from leveret.server.cluster import overview

    try:
        found = overview.status_in(_database(config), SHARD)
    except (UnreachableError, BadFolder) as error:
        return failed(str(error))
    found = {"name": config.cluster.name, **found}
    print(json.dumps(found, indent=2) if options.json else status_text(found))
    return DONE


def _status_of_node(options: argparse.Namespace, api: Api) -> int:
    found = api.get("/api/cluster")
    assert isinstance(found, Mapping)
    print(json.dumps(found, indent=2) if options.json else status_text(found))
    return DONE


def status_text(value: Mapping[str, object]) -> str:
    """Return the state of a cluster for people."""
    from leveret.server.cli import text

    if value.get("state") == "single":
        return "this node is not one of a cluster: its configuration has no [cluster]"
    lines = [f"cluster {value.get('name')}, epoch {value.get('epoch')}"]
    owner = value.get("owner")
    lines.append(f"{owner or 'no node'} serves" + _lease(value))
    lines.append("")
    nodes: list[Mapping[str, object]] = (
        [{"node": owner, "state": value.get("state", "serving")}] if owner else []
    )
    nodes += [
        {
            "node": each.get("name"),
            "state": "standby",
            "host": each.get("host"),
            "since": _when(each.get("since")),
        }
        for each in _rows(value, "standby")
        if each.get("name") != owner
    ]
    lines.append(text.table(nodes, ("node", "state", "host", "since")))
    replicas = [
        {
            "database standby": each.get("name"),
            "is": each.get("sync_state"),
            "bytes behind": each.get("behind"),
        }
        for each in _rows(value, "replication")
    ]
    lines += (
        ["", text.table(replicas, ("database standby", "is", "bytes behind"))]
        if replicas
        else [
            "",
            "the database shows no standby of its own",
        ]
    )
    takeovers = [
        {
            "epoch": each.get("epoch"),
            "node": each.get("node"),
            "at": _when(each.get("at")),
            "took": f"{each.get('took_s')} s",
            "because": each.get("why"),
        }
        for each in _rows(value, "takeovers")
    ]
    if takeovers:
        lines += ["", text.table(takeovers, ("epoch", "node", "at", "took", "because"))]
    return text.plain("\n".join(lines))


def _lease(value: Mapping[str, object]) -> str:
    if "lease_age_s" not in value:
        return ""
    return f" at {value.get('address')}; its last sign of life is {value['lease_age_s']} s old"


def _rows(value: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    rows = value.get(name)
    return [each for each in rows if isinstance(each, Mapping)] if isinstance(rows, Sequence) else []


def _when(seconds: object) -> str:
    if not isinstance(seconds, int | float):
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


# Failover.


def fail_over(options: argparse.Namespace, environ: Environ) -> int:
    return _drill(options) if options.kill else Working(_hand_over)(options, environ)


def _hand_over(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import Refused
    from leveret.server.cli.control_client import Unreachable

    before = api.get("/api/cluster")
    assert isinstance(before, Mapping)
    api.post("/api/cluster/failover", {"to": options.to})
    began = time.monotonic()
    while time.monotonic() - began < WAIT_S:
        time.sleep(LOOK_S)
        try:
            now = api.get("/api/cluster", timeout_s=ANSWER_S)
        except (Refused, Unreachable, OSError):
            continue
        if isinstance(now, Mapping) and now.get("epoch") != before.get("epoch"):
            took_s = time.monotonic() - began
            words = f"{now.get('owner')} serves instead of {before.get('owner')}, after {took_s:.1f} s"
            say(
                options,
                {"from": before.get("owner"), "to": now.get("owner"), "took_s": round(took_s, 3)},
                words,
            )
            return DONE
    return failed(
        f"{before.get('owner')} was told to hand over, but this endpoint shows no other owner: ask another node"
    )


def _drill(options: argparse.Namespace) -> int:
    import attrs

    from leveret.server.cluster import trial
    from leveret.server.cluster.drill import FailoverDrill

    try:
        nodes = trial.noted()
        drill = FailoverDrill([each.http for each in nodes], "guest", "guest")
        tell = (lambda line: None) if options.json else print
        found = drill.run(lambda name: trial.kill(trial.noted(), name), tell)
    except (trial.TrialError, OSError) as error:
        return failed(str(error))
    if options.json:
        print(json.dumps({**attrs.asdict(found), "lost": found.lost}))
    else:
        print(
            f"pause {found.pause_s:.2f} s; confirmed {found.confirmed}, found {found.found}, lost {found.lost}; "
            f"{found.unconfirmed} more found unconfirmed, {found.twice} twice"
        )
    return REFUSED if found.lost else DONE


# Check.


def check(options: argparse.Namespace, environ: Environ) -> int:
    import attrs

    config = _configuration(options.file, environ)
    if isinstance(config, str):
        return failed(config)
    from leveret.server.cluster import inspection

    findings = []
    for each in inspection.inspect(_database(config), config.store.postgres.require_replicated):
        findings.append(each)
        if not options.json:
            mark = {True: "ok", False: "PROBLEM", None: "-"}[each.ok]
            print(f"{mark:8} {each.what:20} {each.found}")
    if options.json:
        print(json.dumps([attrs.asdict(each) for each in findings], indent=2))
    return REFUSED if any(each.ok is False for each in findings) else DONE


def _configuration(file: Path, environ: Environ) -> Config | str:
    """Return the configuration of a node with a store in PostgreSQL, or why it is none."""
    from leveret.config.config import ConfigError, load
    from leveret.config.store import POSTGRES

    try:
        config = load(file, environ)
    except ConfigError as error:
        return f"the configuration cannot be used\n{error}"
    if config.store.engine != POSTGRES:
        return f'{file}: store.engine is "{config.store.engine}"; a cluster has its store in PostgreSQL'
    return config


def _database(config: Config) -> Database:
    from leveret.durable.store.postgres.session import Database

    return Database(config.store.postgres.dsn or "", config.store.postgres.schema)


# Try.


def try_out(options: argparse.Namespace, environ: Environ) -> int:
    import signal

    from leveret.durable.store.folder import BadFolder
    from leveret.server.cluster.trial import LOOK_S as EVERY_S
    from leveret.server.cluster.trial import Trial, TrialError

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        with Trial(lambda line: print(line, file=sys.stderr, flush=True)) as trial:
            print(_instructions(trial.nodes, trial.folder), flush=True)
            while True:
                time.sleep(EVERY_S)
                trial.look_after(time.monotonic())
    except KeyboardInterrupt:
        print("everything has ended, and the folder is gone", file=sys.stderr)
        return DONE
    except (TrialError, BadFolder, OSError) as error:
        return failed(str(error))


def _instructions(nodes: Sequence[object], folder: Path) -> str:
    lines = ["", "Two nodes of one cluster are here; either takes your clients, whichever serves:", ""]
    for each in nodes:
        name, amqp, http = (getattr(each, field) for field in ("name", "amqp", "http"))
        lines.append(f"  node {name}   amqp://guest:guest@127.0.0.1:{amqp}   http://127.0.0.1:{http}")
    http = getattr(nodes[0], "http", 0)
    lines += [
        "",
        "In another terminal:",
        "",
        f"  leveret cluster status --url http://127.0.0.1:{http}",
        "  leveret cluster failover --kill      kill the node that serves, under load, and count",
        f"  leveret cluster failover --url http://127.0.0.1:{http}",
        "",
        f"Logs and configurations are in {folder}. A node that is killed starts again after a few seconds.",
        "Ctrl-C ends everything.",
    ]
    return "\n".join(lines)


ADD: Final[Mapping[str, Add]] = {"cluster": add_cluster}
