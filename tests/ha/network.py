"""Machines in network namespaces of this process's own, on one bridge: cut from each other, in one direction or both.

Only for root, and for a process that has left the system's network (`unshare --net`): then all of it ends with it.

    this process, the database        10.77.0.1 ──┬── bridge ──┬── 10.77.0.2, node a
                                                               └── 10.77.0.3, node b
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.ha.scene import Machine

PROGRAMS = ("unshare", "nsenter", "ip", "iptables")
NET = "10.77.0"
DATABASE = f"{NET}.1"
STANDBY_SEES = "127.0.0.2"  # the primary, by the database's standby
BRIDGE = "cut"
OURS = ""  # the machine of this process, and of the database
DIRECTIONS = ("to", "from", "both")


def missing() -> str | None:
    """Why no network can be cut here; None if it can be."""
    if os.geteuid():
        return "networks are not cut: only root has namespaces"
    absent = [each for each in PROGRAMS if shutil.which(each) is None]
    if absent:
        return f"networks are not cut: {', '.join(absent)} missing (Debian: util-linux, iproute2, iptables)"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    return f"networks are not cut: {done.stderr.strip()}" if done.returncode else None


def run(*command: str) -> None:
    subprocess.run(command, check=True)


class Network:
    """The bridge, and a namespace for each name."""

    def __init__(self, *names: str) -> None:
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "address", "add", f"{DATABASE}/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self.machines: dict[str, Machine] = {}
        for at, name in enumerate(names, 2):
            self._add(name, f"{NET}.{at}")

    def _add(self, name: str, address: str) -> None:
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self._holders[name] = holder
        place = Path(f"/proc/{holder.pid}/ns/net")
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(place) == own:
            time.sleep(0.01)
        machine = self.machines[name] = Machine(address, DATABASE, ("nsenter", f"--net={place}"))
        run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "eth0", "netns", str(holder.pid))
        run("ip", "link", "set", f"to-{name}", "master", BRIDGE, "up")
        run(*machine.command, "ip", "address", "add", f"{address}/24", "dev", "eth0")
        for each in ("lo", "eth0"):
            run(*machine.command, "ip", "link", "set", each, "up")

    def cut(self, name: str, other: str, direction: str, ports: Sequence[int] = ()) -> None:
        """Drop what goes from a machine `to` another one, or comes `from` it, or both. `ports` are the other one's.

        It is dropped where it arrives: a sender is told of what its own machine drops.
        """
        address = self.machines[name].host
        for chain in ("to", "from"):
            if direction in (chain, "both"):
                place, sender = (other, address) if chain == "to" else (name, self._address(other))
                self._drop(place, sender, "--dport" if chain == "to" else "--sport", ports)

    def _drop(self, place: str, sender: str, option: str, ports: Sequence[int]) -> None:
        for port in ports or (None,):
            only = [] if port is None else ["-p", "tcp", option, str(port)]
            rule = ["-A", "INPUT", "-s", sender, *only, "-j", "DROP"]
            run(*self._command(place), "iptables", "-w", *rule)

    def _address(self, name: str) -> str:
        return DATABASE if name == OURS else self.machines[name].host

    def _command(self, name: str) -> tuple[str, ...]:
        return () if name == OURS else self.machines[name].command

    def heal(self) -> None:
        """Drop nothing more."""
        for name in (OURS, *self.machines):
            run(*self._command(name), "iptables", "-w", "-F")

    def unplug(self, name: str) -> None:
        run("ip", "link", "set", f"to-{name}", "down")

    def plug(self, name: str) -> None:
        run("ip", "link", "set", f"to-{name}", "up")

    def end(self) -> None:
        for each in self._holders.values():
            each.kill()
            each.wait()


def cut_standby(port: int, direction: str) -> None:
    """Drop what goes `to` the database's standby, or comes `from` it, or both; `port` is the primary's."""
    ends = {"to": [("-s", "--sport")], "from": [("-d", "--dport")]}
    ends["both"] = ends["to"] + ends["from"]
    for host, number in ends[direction]:
        run("iptables", "-w", "-A", "INPUT", host, STANDBY_SEES, "-p", "tcp", number, str(port), "-j", "DROP")
