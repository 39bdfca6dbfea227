"""The section `[cluster]`: what it takes, and what `leveret check` refuses."""

from __future__ import annotations

import pytest

from leveret.config.config import Config, ConfigError, parse

STORE = '[store]\nengine = "postgres"\n'
WHOLE = STORE + '[cluster]\nname = "prod"\naddress = "10.0.0.1:5680"\n'


def problems(text: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        parse(text)
    return {problem.where: str(problem) for problem in refused.value.problems}


def test_without_a_name_there_is_no_cluster() -> None:
    assert not Config().cluster.is_on
    assert set(problems('[cluster]\nnode = "a"\naddress = "10.0.0.1:5680"')) == {
        "cluster.node",
        "cluster.address",
    }


def test_a_cluster_has_a_name_an_address_and_a_store_that_is_shared() -> None:
    config = parse(WHOLE)
    assert config.cluster.is_on
    assert (config.cluster.lease_ttl, config.cluster.suspend_close_s, config.cluster.relay) == (
        5.0,
        20.0,
        True,
    )
    assert set(problems('[cluster]\nname = "prod"')) == {"cluster.address", "store.engine"}


@pytest.mark.parametrize(
    ("text", "seconds"), [("3", 3.0), ("4.5", 4.5), ('"10 s"', 10.0), ('"3000 ms"', 3.0), ('"1 min"', 60.0)]
)
def test_the_lease_is_a_time(text: str, seconds: float) -> None:
    assert parse(f"{WHOLE}lease_ttl = {text}").cluster.lease_ttl == seconds


@pytest.mark.parametrize("text", ["2.9", '"2 s"', '"5 parsecs"', "true", '"5"', '"1000 h"'])
def test_a_lease_that_is_too_short_or_no_time_is_refused(text: str) -> None:
    assert "3 to 300" in problems(f"{WHOLE}lease_ttl = {text}")["cluster.lease_ttl"]


def test_the_environment_names_a_node_and_its_address() -> None:
    environ = {
        "LEVERET_CLUSTER__NODE": "a-1",
        "LEVERET_CLUSTER__LEASE_TTL": "10 s",
        "LEVERET_CLUSTER__RELAY": "false",
    }
    found = parse(WHOLE, environ).cluster
    assert (found.node, found.lease_ttl, found.relay) == ("a-1", 10.0, False)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("unix:/run/leveret", "other machines can reach"),
        ("0.0.0.0:5680", "one machine"),
        ("127.0.0.1:5672", "an address of its own"),
    ],
)
def test_the_address_is_one_that_others_reach(address: str, why: str) -> None:
    text = f'{STORE}[cluster]\nname = "prod"\naddress = "{address}"'
    assert why in problems(text)["cluster.address"]


def test_a_name_fits_into_that_of_a_session() -> None:
    assert "36 letters" in problems(f'{WHOLE}node = "{"a" * 37}"')["cluster.node"]
