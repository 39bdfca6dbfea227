"""What a listener asks of those who come, as far as it needs no socket."""

from __future__ import annotations

import pytest

from leveret.config.config import parse
from leveret.front_end import Peer
from leveret.server.node.listener import ListenerRules, NotAdmitted, introduced, proxies_of
from leveret.server.node.proxy_protocol import ProxiedRoute, ProxyHeader

from .pki import Pki
from .test_tls_socket import certificates

HERE = Peer("127.0.0.1", 40000, "127.0.0.1", 5672, True)
PROXY = Peer("10.0.0.2", 40000, "10.0.0.5", 5672, False)
FROM_ITSELF = ProxyHeader(0, ProxiedRoute("127.0.0.1", 1, "127.0.0.1", 2))


def test_a_client_on_a_proxy_s_machine_is_on_this_one_only_if_the_proxy_is():
    assert introduced(HERE, FROM_ITSELF).loopback
    assert not introduced(PROXY, FROM_ITSELF).loopback


def test_what_a_proxy_leaves_out_is_its_own():
    assert introduced(PROXY, ProxyHeader(0, None)) == PROXY


@pytest.mark.parametrize("host", ["10.0.0.2", "10.0.0.255", "::ffff:10.0.0.2", "fe80::1%eth0"])
def test_proxies_are_known_in_every_notation(host: str):
    behind(["10.0.0.0/24", "fe80::/10"]).admit_proxy(Peer(host, 1, "10.0.0.5", 5672, False))


@pytest.mark.parametrize("host", ["10.0.1.2", "::1", "::ffff:127.0.0.1"])
def test_others_are_not(host: str):
    with pytest.raises(NotAdmitted, match="proxy_from"):
        behind(["10.0.0.0/24", "fe80::/10"]).admit_proxy(Peer(host, 1, "10.0.0.5", 5672, False))


def test_only_this_machine_is_a_proxy_if_nobody_says_otherwise():
    entry = parse({"listeners": [{"address": "127.0.0.1:0", "proxy_protocol": True}]}).listeners[0]
    entrance = ListenerRules((), None, proxies_of(entry))
    entrance.admit_proxy(HERE)
    with pytest.raises(NotAdmitted):
        entrance.admit_proxy(PROXY)


def behind(networks: list[str]) -> ListenerRules:
    settings = {"address": "127.0.0.1:0", "proxy_protocol": True, "proxy_from": networks}
    return ListenerRules((), None, proxies_of(parse({"listeners": [settings]}).listeners[0]))


def test_a_handshake_is_worth_its_memory_once_its_first_record_is_whole(pki: Pki):
    entrance = ListenerRules((), certificates(pki.settings()))
    hello = b"\x16\x03\x01\x01\x00" + bytes(256)
    assert [size for size in range(len(hello) + 3) if entrance.begins_tls((hello + b"...")[:size])] == [
        261,
        262,
        263,
    ]


def test_a_handshake_with_certificates_may_be_longer(pki: Pki):
    assert ListenerRules((), certificates(pki.settings())).octets_max == 8192
    assert ListenerRules((), certificates(pki.asking("optional"))).octets_max == 40_960


def test_who_shows_a_certificate_shows_it_every_time(pki: Pki):
    """A ticket would bring him in after it has expired."""
    assert certificates(pki.asking("optional")).context.num_tickets == 0
