"""What clients of 0-10 ask of queues in arguments, in the core's words, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.arguments.queue_declaration import limits_of, parse_queue_arguments
from leveret.arguments.row import Effect
from leveret.protocols.amqp010.broker.argument_rows import QUEUE_ROWS
from leveret.protocols.amqp010.broker.arguments import (
    ALTERNATE_OF_QUEUE,
    MEANINGS,
    core_arguments,
    shown,
)
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.machine.contract import SessionError
from leveret.values import Table, UInt8

WITHOUT_EFFECT = [row.name for row in QUEUE_ROWS if row.effect is Effect.NO_EFFECT]
MEANT: list[tuple[Table, Table]] = [
    ({"qpid.max_count": 5}, {"x-max-length": 5, "x-overflow": "reject-publish"}),
    ({"qpid.max_count": "5"}, {"x-max-length": 5, "x-overflow": "reject-publish"}),
    ({"qpid.max_count": 0}, {}),
    ({"qpid.max_size": 7}, {"x-max-length-bytes": 7, "x-overflow": "reject-publish"}),
    ({"qpid.policy_type": "ring"}, {}),
    (
        {"qpid.policy_type": "ring", "qpid.max_count": 5, "qpid.max_size": 7},
        {"x-max-length": 5, "x-max-length-bytes": 7, "x-overflow": "drop-head"},
    ),
    (
        {"qpid.policy_type": "RING_STRICT", "qpid.max_count": 5},
        {"x-max-length": 5, "x-overflow": "drop-head"},
    ),
    (
        {"qpid.policy_type": "reject", "qpid.max_count": 5},
        {"x-max-length": 5, "x-overflow": "reject-publish"},
    ),
    (
        {"qpid.policy_type": "self-destruct", "qpid.max_count": 5},
        {"x-max-length": 5, "x-overflow": "self-destruct"},
    ),
    (
        {"qpid.policy_type": "flow_to_disk", "qpid.max_size": 7},
        {"x-max-length-bytes": 7, "x-overflow": "flow-to-disk"},
    ),
    (
        {"qpid.policy_type": "producer_flow_control", "qpid.max_count": 7},
        {"x-max-length": 7, "x-overflow": "producer-flow-control"},
    ),
    ({"x-qpid-capacity": 0, "x-qpid-flow-resume-capacity": 5}, {}),
    (
        {"x-qpid-capacity": "1000"},
        {"x-max-length-bytes": 1000, "x-overflow": "producer-flow-control", "x-flow-resume-percent": 100},
    ),
    (
        {"x-qpid-capacity": 1000, "x-qpid-flow-resume-capacity": 255},
        {"x-max-length-bytes": 1000, "x-overflow": "producer-flow-control", "x-flow-resume-percent": 25},
    ),
    ({"qpid.last_value_queue": 1}, {"x-last-value-key": "qpid.LVQ_key"}),
    ({"qpid.last_value_queue": True}, {"x-last-value-key": "qpid.LVQ_key"}),
    ({"qpid.last_value_queue": "true"}, {"x-last-value-key": "qpid.LVQ_key"}),
    ({"qpid.last_value_queue": False}, {}),
    ({"qpid.last_value_queue_no_browse": 1}, {"x-last-value-key": "qpid.LVQ_key"}),
    ({"qpid.last_value_queue_key": "stock"}, {"x-last-value-key": "stock"}),
    ({"qpid.last_value_queue": 1, "qpid.last_value_queue_key": "stock"}, {"x-last-value-key": "stock"}),
    ({"x-qpid-priorities": 10}, {"x-max-priority": 9, "x-priority-base": 0}),
    ({"qpid.priorities": 10}, {"x-max-priority": 9, "x-priority-base": 0}),
    ({"qpid.priorities": 5}, {"x-max-priority": 4, "x-priority-base": 2}),
    ({"qpid.priorities": 2}, {"x-max-priority": 1, "x-priority-base": 4}),
    ({"qpid.priorities": 1}, {}),
    ({"x-qpid-priorities": 3}, {"x-max-priority": 2, "x-priority-base": 3}),
    (
        {"qpid.priorities": 3, "qpid.fairshare": 5},
        {"x-max-priority": 2, "x-priority-base": 3, "x-fair-share": 5},
    ),
    (
        {"x-qpid-priorities": 3, "x-qpid-fairshare": "5", "x-qpid-fairshare-1": 0, "qpid.fairshare-0": 2},
        {"x-max-priority": 2, "x-priority-base": 3, "x-fair-share": [2, 0, 5]},
    ),
    ({"x-max-priority": 1, "qpid.fairshare-1": 9}, {"x-fair-share": [0, 9]}),
    (
        {"qpid.priorities": 2, "qpid.fairshare-1": 3, "qpid.fairshare-2": 4, "qpid.fairshare-999999999": 5},
        {"x-max-priority": 1, "x-priority-base": 4, "x-fair-share": [0, 3]},
    ),
    ({"qpid.priorities": 2, "qpid.fairshare": 0}, {"x-max-priority": 1, "x-priority-base": 4}),
    ({"qpid.priorities": 1, "qpid.fairshare": 5}, {}),
    ({"qpid.fairshares": 5}, {}),
    (
        {"qpid.priorities": 2, "qpid.fairshare": 5, "qpid.last_value_queue_key": "k"},
        {"x-max-priority": 1, "x-priority-base": 4, "x-last-value-key": "k"},
    ),
    (
        {"qpid.priorities": 2, "qpid.fairshare": 5, "qpid.group_header_key": "k", "qpid.shared_msg_group": 1},
        {"x-max-priority": 1, "x-priority-base": 4, "x-message-group-key": "k"},
    ),
    ({"qpid.group_header_key": "g"}, {}),
    ({"qpid.group_header_key": "g", "qpid.shared_msg_group": 1}, {"x-message-group-key": "g"}),
    ({"qpid.group_header_key": "g", "qpid.shared_msg_group": 0}, {}),
    ({"qpid.queue_msg_sequence": "n"}, {"x-sequence-header": "n"}),
    ({"qpid.queue_msg_sequence": ""}, {}),
    ({"no-local": True}, {"x-no-local": True}),
    ({"no-local": "false"}, {}),
    ({"qpid.auto_delete_timeout": 3}, {"x-auto-delete-delay": 3000}),
    ({"qpid.auto_delete_timeout": 0}, {}),
    ({"x-message-ttl": 5}, {}),
    *(({name: 1}, {}) for name in WITHOUT_EFFECT),
]


def test_every_argument_has_a_row_and_every_row_a_meaning() -> None:
    implemented = {row.name for row in QUEUE_ROWS if row.effect is Effect.IMPLEMENTED}
    shares = {"qpid.fairshare", "x-qpid-fairshare"}
    besides = {"qpid.shared_msg_group", "x-qpid-flow-resume-capacity"}
    assert implemented == {*MEANINGS, *shares, *(f"{each}-N" for each in shares), *besides}


@pytest.mark.parametrize(("asked", "meant"), MEANT, ids=str)
def test_arguments_are_kept_and_what_they_mean_is_added(asked: Table, meant: Table) -> None:
    arguments = core_arguments(dict(asked))
    assert arguments == {**asked, **meant}
    parse_queue_arguments("q", "/", False, False, False, arguments)
    assert shown(arguments) == asked


def test_an_alternate_exchange_is_no_argument_to_who_asks() -> None:
    arguments = core_arguments({"a": 1}, "e")
    assert arguments[ALTERNATE_OF_QUEUE] == "e"
    assert limits_of(arguments).alternate_exchange == "e"
    assert shown(arguments) == {"a": 1}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"qpid.max_count": "many"}, "qpid.max_count: many is no whole number"),
        ({"qpid.max_count": -1}, "-1 is no whole number"),
        ({"qpid.max_count": True}, "true is no whole number"),
        ({"qpid.max_count": 1.5}, "1.5 is no whole number"),
        ({"qpid.max_count": "9" * 5000}, "is no whole number"),
        ({"qpid.max_count": "٣"}, "is no whole number"),
        ({"qpid.max_size": None}, "is no whole number"),
        ({"qpid.policy_type": "drop", "qpid.max_count": 1}, "drop is not one of reject"),
        ({"qpid.priorities": 257}, "no whole number from 0 to 256"),
        ({"qpid.fairshare": 5}, "qpid.fairshare: there are no levels to share"),
        ({"qpid.priorities": 4, "qpid.fairshare": "much"}, "qpid.fairshare: much is no whole number"),
        ({"qpid.priorities": 4, "qpid.fairshare-1": -1}, "qpid.fairshare-1: -1 is no whole number"),
        ({"qpid.priorities": 4, "qpid.fairshare-x": 1}, "qpid.fairshare-x: a level is a number"),
        ({"qpid.priorities": 4, "x-qpid-fairshare-": 1}, "x-qpid-fairshare-: a level is a number"),
        ({"qpid.priorities": 4, "qpid.fairshare-" + "9" * 9000: 1}, "a level is a number"),
        ({"qpid.last_value_queue": "perhaps"}, "neither true nor false"),
        ({"qpid.last_value_queue_key": 5}, "5 is no text"),
        ({"qpid.group_header_key": 5}, "5 is no text"),
        ({"qpid.queue_msg_sequence": 5}, "5 is no text"),
        ({"qpid.auto_delete_timeout": 1 << 40}, "no whole number"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_faulty_argument_is_invalid_and_named(asked: dict, words: str) -> None:
    with pytest.raises(SessionError) as caught:
        core_arguments(asked, field_index=7)
    assert (caught.value.code, caught.value.field_index) == (c.ERROR_CODE_INVALID_ARGUMENT, 7)
    assert words in caught.value.description


def test_levels_that_nobody_can_have_are_not_counted() -> None:
    arguments = core_arguments({"x-max-priority": 1 << 62, "qpid.fairshare": 1, "qpid.fairshare-0": 2})
    assert arguments["x-fair-share"] == [2, *[1] * 255]
    assert len(limits_of(arguments).fair_share) == 256


def test_a_queue_of_another_protocol_is_shown_as_it_is() -> None:
    assert shown({"x-max-length": UInt8(5), "qpid.max_count": "nonsense"}) == {
        "x-max-length": 5,
        "qpid.max_count": "nonsense",
    }


values = st.none() | st.booleans() | st.integers(-5, 300) | st.text(max_size=5) | st.binary(max_size=3)


@given(st.dictionaries(st.sampled_from([*MEANINGS, "qpid.shared_msg_group", "x"]), values, max_size=4))
def test_whatever_is_asked_is_refused_or_shown_again(asked: dict) -> None:
    try:
        arguments = core_arguments(asked)
    except SessionError:
        return
    limits_of(arguments)
    assert shown(arguments) == asked
