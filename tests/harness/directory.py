"""A directory of OpenLDAP (slapd) in a folder, with people and groups, on two ports of this machine.

with Slapd(folder, pki) as directory: ...   # `directory.url`, `directory.secure_url`

`ann` is in `operators` and `blue-users`, `bob` in no group. The password of each is `hush-NAME`. `search` may search;
nobody else sees groups, if `searchers_only`.
"""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.harness.postgres import free_port
from tests.tls.pki import Pki

SLAPD: Final = Path("/usr/sbin/slapd")
SUFFIX: Final = "dc=example,dc=org"
PEOPLE, GROUPS = f"ou=people,{SUFFIX}", f"ou=groups,{SUFFIX}"
STARTS_S: Final = 20.0
CONFIGURATION: Final = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCertificateFile {folder}/server.pem
TLSCertificateKeyFile {folder}/server.key
{asking}
database mdb
suffix {suffix}
rootdn cn=root,{suffix}
directory {folder}/data
access to attrs=userPassword by anonymous auth
access to dn.subtree={groups} by dn.exact="uid=search,{people}" read {others}
access to * by dn.exact="uid=search,{people}" read by self read by * auth
"""


def entry(dn: str, *attributes: str) -> str:
    return "\n".join((f"dn: {dn}", *attributes, "", ""))


def person(name: str) -> str:
    return entry(
        f"uid={name},{PEOPLE}", "objectClass: inetOrgPerson", "cn: x", "sn: x", f"userPassword: hush-{name}"
    )


def group(name: str, *members: str) -> str:
    return entry(
        f"cn={name},{GROUPS}",
        "objectClass: groupOfNames",
        *(f"member: uid={each},{PEOPLE}" for each in members),
    )


PEOPLE_AND_GROUPS: Final = "".join(
    (
        entry(SUFFIX, "objectClass: domain"),
        entry(PEOPLE, "objectClass: organizationalUnit"),
        entry(GROUPS, "objectClass: organizationalUnit"),
        *map(person, ("ann", "bob", "search")),
        group("operators", "ann"),
        group("blue-users", "ann"),
        group("others", "search"),
    )
)


class Slapd:
    def __init__(
        self, folder: Path, pki: Pki, searchers_only: bool = False, certified_only: bool = False
    ) -> None:
        self._folder = folder / "slapd"
        (self._folder / "data").mkdir(parents=True)
        issued = pki.authority.issue_cert("127.0.0.1", common_name="directory")  # GnuTLS wants a common name
        (self._folder / "server.pem").write_bytes(issued.cert_chain_pems[0].bytes())
        (self._folder / "server.key").write_bytes(issued.private_key_pem.bytes())
        others = "" if searchers_only else "by users read"
        asking = f"TLSCACertificateFile {pki.ca}\nTLSVerifyClient demand" if certified_only else ""
        configuration = CONFIGURATION.format(
            folder=self._folder, suffix=SUFFIX, people=PEOPLE, groups=GROUPS, others=others, asking=asking
        )
        (self._folder / "slapd.conf").write_text(configuration)
        subprocess.run(
            ["/usr/sbin/slapadd", "-q", "-f", str(self._folder / "slapd.conf")],
            input=PEOPLE_AND_GROUPS.encode(),
            check=True,
            capture_output=True,
        )
        self._ports = free_port(), free_port()
        self.url, self.secure_url = (
            f"{scheme}://127.0.0.1:{port}"
            for scheme, port in zip(("ldap", "ldaps"), self._ports, strict=True)
        )

    def __enter__(self) -> Self:
        urls = f"{self.url} {self.secure_url}"
        command = [str(SLAPD), "-f", str(self._folder / "slapd.conf"), "-h", urls, "-d", "0"]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + STARTS_S
        while not all(map(listens, self._ports)):
            assert time.monotonic() < deadline
            assert self._process.poll() is None
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
