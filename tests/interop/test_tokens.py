"""Real clients with tokens for passwords: pika and Proton come in, renew, and are sent away when it is over."""

from __future__ import annotations

import time
from pathlib import Path

import pika
import pika.exceptions
import pytest
from proton import ConnectionException
from proton.utils import BlockingConnection

from tests.interop.conftest import RunningNode, Start
from tests.security.issuer import settings, token, write_keys

pytestmark = pytest.mark.interop

SECONDS = 3  # that a short token is good for: enough to come in on a busy machine


@pytest.fixture
def node(tmp_path: Path, node_with: Start) -> RunningNode:
    return node_with(settings(write_keys(tmp_path), "leeway_s = 0"))


def good_for(seconds: float, **claims: object) -> str:
    return token(exp=time.time() + seconds, iat=None, **claims)


def over_pika(node: RunningNode, given: str) -> pika.BlockingConnection:
    parameters = pika.URLParameters(node.url)
    parameters.credentials = pika.PlainCredentials("", given)
    return pika.BlockingConnection(parameters)


def over_proton(node: RunningNode, given: str) -> BlockingConnection:
    url = node.url.replace("guest:guest@", "").removesuffix("/%2F")
    return BlockingConnection(url, user="shop", password=given, allowed_mechs="PLAIN", timeout=60)


def test_pika_comes_in_with_a_token_and_does_what_its_scopes_say(node: RunningNode):
    connection = over_pika(node, good_for(600, scope="leveret.configure:*/mine"))
    channel = connection.channel()
    channel.queue_declare("mine")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="refused for user 'shop'"):
        channel.queue_declare("theirs")
    connection.close()


def test_pika_is_told_what_it_is_told_of_a_wrong_password(node: RunningNode):
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="Login was refused"):
        over_pika(node, good_for(-1))


def test_pika_stays_with_a_fresh_token_and_goes_when_that_is_over(node: RunningNode):
    connection = over_pika(node, good_for(SECONDS))
    connection.update_secret(good_for(2 * SECONDS), "it was time")
    connection.process_data_events(SECONDS + 0.5)
    assert connection.is_open
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="credential expired"):
        connection.process_data_events(60)


def test_proton_comes_in_with_a_token_and_goes_when_it_is_over(node: RunningNode):
    connection = over_proton(node, good_for(SECONDS))
    with pytest.raises(ConnectionException, match="credential expired"):
        connection.wait(lambda: False, timeout=60)


def test_proton_does_not_come_in_with_a_token_for_others(node: RunningNode):
    with pytest.raises(ConnectionException, match=r"Authentication failed|PLAIN"):
        over_proton(node, good_for(600, aud="other"))
