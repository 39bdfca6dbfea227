"""The contested behaviours: rows, profiles, and what each decides."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from leveret.config.compat import (
    PROFILES,
    Compat,
    FlowMechanism,
    GlobalQos,
    OnMissing,
    Product,
    Retired,
    TransientQueues,
    UnknownExchangeType,
    UnknownVirtualHost,
    compat,
)
from leveret.config.records import keys_of
from leveret.config.sections import CompatSettings
from leveret.errors import NotAllowed, PreconditionFailed, Unsupported
from leveret.limits import QueueLimits
from leveret.version import VERSION


def test_the_default_profile_is_the_defaults() -> None:
    assert compat() == compat("default") == Compat()


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_can_be_made_and_differs_only_where_it_says(profile: str) -> None:
    made = compat(profile)
    different = {name for name in keys_of(Compat) if getattr(made, name) != getattr(Compat(), name)}
    assert different == set(PROFILES[profile])


def test_single_rows_change_a_profile() -> None:
    made = compat("rabbitmq-4", immediate=True, delete_missing="not-found", qos_global=GlobalQos.CHANNEL)
    assert made.immediate
    assert made.delete_missing is OnMissing.NOT_FOUND
    assert made.qos_global is GlobalQos.CHANNEL
    assert made.frame_min_size == 8192


def test_rows_and_words_that_nobody_knows_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match="compat") as raised:
        compat("spec", imediate=True, delete_missing="maybe", memory_watermark=True)
    text = str(raised.value)
    assert 'compat.delete_missing: found "maybe", accepted: "ok" or "not-found"' in text
    assert "compat.imediate: found an unknown key, accepted: frame_min_size, " in text
    assert "did you mean 'immediate'?" in text
    assert "compat.memory_watermark: found true, accepted: a number from 0.0 to 1.0" in text


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(ValueError, match="accepted: default, spec, ") as raised:
        compat("rabbit")
    releases = [f"rabbitmq-4.{minor}" for minor in range(5)]
    known = ", ".join(["default", "spec", "rabbitmq-3.13", *releases, "rabbitmq-4"])
    assert str(raised.value) == f'profile: found "rabbit", accepted: {known}'


def test_words_are_written_as_in_the_file() -> None:
    row = keys_of(Compat)["qos_global"].kind
    assert row.from_text("channel") == "channel"
    assert row.shown(GlobalQos.CHANNEL) == row.shown("channel") == '"channel"'


def test_the_page_shows_every_row_with_what_each_profile_says() -> None:
    page = (Path(__file__).parents[3] / "docs" / "compatibility.md").read_text()
    page = page.partition("## Rows and profiles")[2].partition("\n## ")[0]
    table = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    heading, *lines = table
    assert [cell.strip("`") for cell in heading[2:]] == list(PROFILES)
    shown = {line[0].strip("`"): line[2:] for line in lines}
    rows = keys_of(Compat)
    assert shown == {
        name: [row.kind.shown(getattr(compat(profile), name)).strip('"') for profile in PROFILES]
        for name, row in rows.items()
    }


def test_every_row_says_what_it_is_for() -> None:
    assert all(row.doc.endswith(".") for row in keys_of(Compat).values())


def test_the_specification_is_followed_where_it_differs() -> None:
    spec = compat("spec")
    assert spec.delete_missing is OnMissing.NOT_FOUND
    assert spec.unknown_virtual_host is UnknownVirtualHost.INVALID_PATH
    assert spec.flow_mechanism is FlowMechanism.CHANNEL_FLOW
    assert spec.dead_letter_on_delete
    assert spec.immediate
    assert spec.channel_flow


def test_s038_an_unknown_exchange_type() -> None:
    failure = Compat().unknown_exchange_type_error("x-y")
    assert isinstance(failure, PreconditionFailed)
    assert str(failure) == "unknown exchange type 'x-y'"
    assert isinstance(compat("spec").unknown_exchange_type_error("x-y"), UnknownExchangeType)


def test_s039_an_exchange_declared_again_with_another_type() -> None:
    error = PreconditionFailed("inequivalent")
    assert Compat().redeclare_error("type", error) is error
    assert compat("spec").redeclare_error("durable", error) is error
    strict = compat("spec").redeclare_error("type", error)
    assert isinstance(strict, NotAllowed)
    assert str(strict) == "inequivalent"


def test_s043_s057_s075_s131_the_lenient_sides() -> None:
    assert Compat().delete_missing_ok
    assert not compat("spec").delete_missing_ok
    assert Compat().warns_missing_alternate
    assert not compat("rabbitmq-4").warns_missing_alternate


def test_s070_transient_queues() -> None:
    Compat().check_transient_queue(durable=False, exclusive=False)
    strict = compat(transient_queues=TransientQueues.REFUSE)
    strict.check_transient_queue(durable=True, exclusive=False)
    strict.check_transient_queue(durable=False, exclusive=True)
    with pytest.raises(Retired, match="`transient_nonexcl_queues` is deprecated") as raised:
        strict.check_transient_queue(durable=False, exclusive=False)
    assert isinstance(raised.value, Unsupported)


def test_x012_wildcards_in_topic_binding_keys() -> None:
    Compat().check_binding_key("topic", "#.#.#")
    strict = compat("rabbitmq-4")
    strict.check_binding_key("topic", "#.a#.#")
    strict.check_binding_key("direct", "#.#.#")
    with pytest.raises(PreconditionFailed) as raised:
        strict.check_binding_key("topic", "#.#.#")
    assert str(raised.value) == "Topic binding key '#.#.#' uses 3 '#' wildcards, at most 2 are allowed"


def test_x028_the_queues_that_know_a_consumer_timeout() -> None:
    arguments = {"x-consumer-timeout": 1000}
    Compat().check_queue_arguments("q", "/", arguments)
    strict = compat("rabbitmq-4")
    strict.check_queue_arguments("q", "/", {**arguments, "x-queue-type": "quorum"})
    strict.check_queue_arguments("q", "/", {})
    with pytest.raises(PreconditionFailed) as raised:
        strict.check_queue_arguments("q", "/", arguments)
    text = "invalid arg 'x-consumer-timeout' for queue 'q' in vhost '/' of queue type rabbit_classic_queue"
    assert str(raised.value) == text


DELIVERY_LIMITS: list[tuple[str, bool, int | None, int | None]] = [
    ("default", True, None, 20),
    ("default", False, None, None),
    ("default", True, 3, 3),
    ("default", True, 0, 0),
    ("default", True, -1, None),
    ("spec", False, None, 5),
    ("rabbitmq-3.13", True, None, None),
]


@pytest.mark.parametrize(("profile", "quorum", "said", "obeyed"), DELIVERY_LIMITS)
def test_a_delivery_limit_that_was_said_beats_the_default(
    profile: str, quorum: bool, said: int | None, obeyed: int | None
) -> None:
    limits = QueueLimits(delivery_limit=said)
    assert compat(profile).queue_limits(limits, quorum).delivery_limit == obeyed


TIMEOUTS: list[tuple[str, bool, int | None, int | None]] = [
    ("default", False, None, 9),
    ("default", False, 5, 5),
    ("default", False, 0, None),
    ("rabbitmq-4", False, None, None),
    ("rabbitmq-4", True, None, 9),
]


@pytest.mark.parametrize(("profile", "quorum", "said", "obeyed"), TIMEOUTS)
def test_a_consumer_timeout_that_was_said_beats_the_default(
    profile: str, quorum: bool, said: int | None, obeyed: int | None
) -> None:
    limits = QueueLimits(consumer_timeout_ms=said)
    assert compat(profile).queue_limits(limits, quorum, consumer_timeout_ms=9).consumer_timeout_ms == obeyed


@pytest.mark.parametrize(
    ("profile", "product", "version"),
    [
        ("default", "Leveret", VERSION),
        ("rabbitmq-3.13", "RabbitMQ", "3.13.7"),
        ("rabbitmq-4", "RabbitMQ", "4.4.0"),
        ("rabbitmq-4.0", "RabbitMQ", "4.0.9"),
        ("rabbitmq-4.4", "RabbitMQ", "4.4.0"),
    ],
)
def test_s005_x050_what_a_node_calls_itself(profile: str, product: str, version: str) -> None:
    assert compat(profile).product_and_version == (product, version)
    assert compat(profile, product="leveret").product_and_version == ("Leveret", VERSION)


def test_what_is_chosen_is_made_once_for_each_record_of_settings() -> None:
    """Each connection asks for it."""
    settings = CompatSettings(profile="rabbitmq-4")
    assert settings.chosen is settings.chosen
    assert attrs.evolve(settings, profile="default").chosen.frame_min_size != settings.chosen.frame_min_size


def test_releases_of_rabbitmq_differ_where_their_notes_say_so() -> None:
    def of(row: str) -> list[object]:
        return [getattr(compat(f"rabbitmq-4.{minor}"), row) for minor in range(5)]

    assert of("frame_min_size") == [4096, 8192, 8192, 8192, 8192]
    assert of("address_v1") == [True, True, True, False, False]
    assert [each is TransientQueues.ALLOW for each in of("transient_queues")] == of("address_v1")
    assert [each.value for each in of("quorum_priorities")] == ["two-levels"] * 3 + ["strict"] * 2  # type: ignore[attr-defined]
    assert of("topic_wildcards_max") == [None, None, None, 2, 2]
    newest = attrs.evolve(compat("rabbitmq-4.4"), product=Product.RABBITMQ_4)
    assert newest == compat("rabbitmq-4")
