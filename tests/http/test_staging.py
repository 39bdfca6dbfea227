"""Staged publishing over HTTP: what each request answers, what is refused in which words, and who waits for what."""

from __future__ import annotations

import json
import logging

import pytest

from leveret.features.staging.staging import NOTES_MAX, STAGINGS_MAX, Staging, stagings_of
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.values import Json, Properties
from tests.harness.http import request
from tests.http.press import BASE, Press, packed, rows

PATH = "/api/leveret/staging/%2F"


def staging_of(press: Press, name: str = "job") -> Staging:
    return stagings_of(press.host)[name]


# A batch.


def test_what_is_staged_is_seen_by_nobody_until_it_is_committed_as_a_whole(press: Press) -> None:
    assert press.stage("7/1/5?piece=0", rows("q", b"1a", b"1b")) == {"rows": 2}
    assert press.stage("7/1/5?piece=1", rows("q", b"1c")) == {"rows": 3}
    assert press.stage("7/0/9?piece=0", rows("q", b"0a") + rows("q", b"0b")) == {"rows": 2}
    assert press.stage("8/0/9?piece=0", rows("q", b"later")) == {"rows": 1}
    assert press.bodies() == ""
    assert press.state() == {
        "name": "job",
        "batch": -1,
        "publishing": 0,
        "staged": {"7": 5, "8": 1},
        "octets": 15,
    }
    assert press.commit(7, [1, 5, 3], [0, 9, 2]) == {"published": 5, "unroutable": 0, "repeated": False}
    assert press.bodies() == "0a 0b 1a 1b 1c"
    assert press.state() == {**press.state(), "batch": 7, "publishing": 0, "staged": {"8": 1}}


def test_every_request_can_be_repeated(press: Press) -> None:
    for _ in range(2):
        assert press.stage("7/0/9?piece=0", rows("q", b"a")) == {"rows": 1}
    assert press.stage("7/0/9?piece=1", rows("q", b"b")) == {"rows": 2}
    assert press.stage("7/0/9?piece=0", rows("q", b"other")) == {"rows": 2}
    assert press.commit(7, [0, 9, 2]) == {"published": 2, "unroutable": 0, "repeated": False}
    assert press.commit(7, [0, 9, 2]) == {"published": 2, "unroutable": 0, "repeated": True}
    assert press.stage("7/0/9?piece=2", rows("q", b"c")) == {"rows": 0, "repeated": True}
    assert press.stage("3/0/9?piece=0", rows("q", b"c")) == {"rows": 0, "repeated": True}
    assert press.commit(3, [0, 9, 1]) == {"published": 0, "unroutable": 0, "repeated": True}
    assert press.bodies() == "a b"
    assert press.state()["staged"] == {}


def test_other_attempts_of_a_batch_and_batches_before_it_go_when_it_is_committed(press: Press) -> None:
    for part in ("6/0/1", "7/0/1", "7/0/2", "7/1/3", "8/0/4"):
        press.stage(f"{part}?piece=0", rows("q", part.encode()))
    press.commit(7, [0, 2, 1])
    assert press.bodies() == "7/0/2"
    assert press.state()["staged"] == {"8": 1}
    press.commit(8, [0, 4, 1])
    assert press.bodies() == "7/0/2 8/0/4"


@pytest.mark.parametrize(
    ("parts", "reason", "missing"),
    [
        (
            [[0, 1, 1], [1, 1, 1]],
            "partition 1, attempt 1 of batch 7 has 0 rows, not 1: nothing is committed",
            [1, 1],
        ),
        ([[0, 1, 2]], "partition 0, attempt 1 of batch 7 has 1 rows, not 2: nothing is committed", [0, 1]),
        ([[0, 1, 0]], "partition 0, attempt 1 of batch 7 has 1 rows, not 0: nothing is committed", [0, 1]),
        ([[0, 2, 1]], "partition 0, attempt 2 of batch 7 has 0 rows, not 1: nothing is committed", [0, 2]),
    ],
)
def test_a_commit_of_what_is_not_there_does_nothing(
    press: Press, parts: Json, reason: str, missing: Json
) -> None:
    press.stage("7/0/1?piece=0", rows("q", b"a"))
    before = press.state()
    response = press.ask("POST", f"{BASE}/7/commit", json.dumps({"parts": parts}).encode())
    assert response.status == 409
    assert response.content == {"error": "Conflict", "reason": reason, "missing": missing}
    assert press.state() == before
    assert press.commit(7, [0, 1, 1]) == {"published": 1, "unroutable": 0, "repeated": False}


def test_a_batch_may_have_no_rows(press: Press) -> None:
    assert press.commit(0, [0, 1, 0]) == {"published": 0, "unroutable": 0, "repeated": False}
    assert press.commit(1) == {"published": 0, "unroutable": 0, "repeated": False}
    assert press.state()["batch"] == 1
    response = press.ask("POST", f"{PATH}/unheard/0/commit", b'{"parts": [[0, 1, 1]]}')
    assert (response.status, response.content["missing"]) == (409, [0, 1])
    assert "unheard" not in stagings_of(press.host)


def test_a_piece_cannot_come_before_another(press: Press) -> None:
    for there, expected in ((True, 1), (False, 0)):
        if there:
            press.stage("7/0/1?piece=0", rows("q", b"a"))
        partition = 0 if there else 1
        response = press.ask("POST", f"{BASE}/7/{partition}/1?piece=2", rows("q", b"c"))
        assert response.status == 409
        reason = f"piece 2 cannot come yet, piece {expected} is the next"
        assert response.content == {"error": "Conflict", "reason": reason, "piece": expected}


def test_what_goes_to_no_queue_is_counted_and_said_once(
    press: Press, caplog: pytest.LogCaptureFixture
) -> None:
    press.site.exchange("x")
    press.stage("7/0/1?piece=0", rows("q", b"a") + rows("q", b"b", b"c", exchange="x") + rows("none", b"d"))
    with caplog.at_level(logging.WARNING):
        assert press.commit(7, [0, 1, 4]) == {"published": 1, "unroutable": 3, "repeated": False}
    text = "3 of 4 messages of batch 7 of staging 'job' in vhost '/' went to no queue"
    assert [record.getMessage() for record in caplog.records if "batch" in record.getMessage()] == [text]


def test_an_exchange_that_is_deleted_meanwhile_leaves_its_rows_without_a_queue(press: Press) -> None:
    press.host.bind(press.site.exchange("x"), press.queue, "", {})
    press.stage("7/0/1?piece=0", rows("", b"a", exchange="x") + rows("q", b"b"))
    press.host.delete_exchange("x")
    assert press.commit(7, [0, 1, 2]) == {"published": 1, "unroutable": 1, "repeated": False}


def test_with_mandatory_a_row_without_a_queue_is_refused_with_all_others(press: Press) -> None:
    press.site.exchange("x")
    body = rows("q", b"a") + rows("k", b"b", exchange="x")
    response = press.ask("POST", f"{BASE}/7/0/1?piece=0&mandatory=true", body)
    assert response.status == 422
    assert response.content == {
        "error": "Unprocessable Entity",
        "reason": "no queue is bound for a message to exchange 'x' with key 'k'",
        "exchange": "x",
        "key": "k",
    }
    assert "job" not in stagings_of(press.host)
    assert press.stage("7/0/1?piece=0&mandatory=true", rows("q", b"a")) == {"rows": 1}


def test_dropping_a_batch_leaves_nothing_of_it(press: Press) -> None:
    for part in ("7/0/1", "7/1/1", "8/0/1"):
        press.stage(f"{part}?piece=0", rows("q", b"a", b"b"))
    assert press.ask("DELETE", f"{BASE}/7").content == {"dropped": 4}
    assert press.ask("DELETE", f"{BASE}/7").content == {"dropped": 0}
    assert press.state()["staged"] == {"8": 2}
    press.commit(8, [0, 1, 2])
    response = press.ask("DELETE", f"{BASE}/8")
    assert response.status == 409
    assert response.content["reason"] == "batch 8 of staging 'job' in vhost '/' is committed already"


def test_a_name_can_be_forgotten_and_begins_anew(press: Press) -> None:
    press.stage("7/0/1?piece=0", rows("q", b"a"))
    press.commit(7, [0, 1, 1])
    press.stage("8/0/1?piece=0", rows("q", b"a", b"b"))
    assert press.ask("DELETE", BASE).content == {"dropped": 2}
    assert press.ask("GET", BASE).refusal == (404, "no staging 'job' in vhost '/'")
    assert '["staging", "/", "job"]' not in press.again().site.objects
    press.stage("7/0/1?piece=0", rows("q", b"new"))
    assert press.commit(7, [0, 1, 1]) == {"published": 1, "unroutable": 0, "repeated": False}


# Waiting.


def test_a_full_queue_is_waited_for_and_what_is_behind_waits_as_well() -> None:
    press = Press(x_max_length=2, x_overflow="reject-publish")
    press.site.queue("free")
    press.stage("7/0/1?piece=0", rows("q", b"a", b"b", b"c") + rows("free", b"d"))
    press.stage("8/0/1?piece=0", rows("free", b"e"))
    first = press.send("POST", f"{BASE}/7/commit", b'{"parts": [[0, 1, 4]]}')
    second = press.send("POST", f"{BASE}/8/commit", b'{"parts": [[0, 1, 1]]}')
    for _ in range(5):
        press.advance()
    assert first.waits
    assert second.waits
    assert (press.bodies(), press.bodies("free")) == ("a b", "")
    assert press.state() == {**press.state(), "batch": 8, "publishing": 3, "staged": {}}
    press.queue.purge()
    assert first.answer().content == {"published": 4, "unroutable": 0, "repeated": False}
    assert second.answer().content == {"published": 1, "unroutable": 0, "repeated": False}
    assert (press.bodies(), press.bodies("free")) == ("c", "d e")
    assert press.queue.refused == 0


def test_who_waits_too_long_may_ask_again_and_waits_for_the_same() -> None:
    press = Press(x_max_length=1, x_overflow="reject-publish")
    press.stage("7/0/1?piece=0", rows("q", b"a", b"b"))
    line = press.send("POST", f"{BASE}/7/commit", b'{"parts": [[0, 1, 2]]}')
    press.advance(24.9)
    assert line.waits
    press.advance(0.2)
    response = line.answer()
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert response.content["reason"] == (
        "1 rows of batch 7 of staging 'job' in vhost '/' are still to be published, and will be; ask again later"
    )
    refused = press.ask("DELETE", BASE)
    assert refused.status == 409
    assert refused.content["reason"] == "staging 'job' in vhost '/' has 1 rows still to publish"
    line = press.send("POST", f"{BASE}/7/commit", b'{"parts": [[0, 1, 2]]}')
    press.queue.purge()
    assert line.answer().content == {"published": 2, "unroutable": 0, "repeated": True}


def test_an_alarm_refuses_pieces_and_holds_back_what_is_committed(press: Press) -> None:
    press.stage("7/0/1?piece=0", rows("q", b"a"))
    press.broker.alarms.set("low on memory")
    response = press.ask("POST", f"{BASE}/7/0/1?piece=1", rows("q", b"b"))
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert response.content["reason"] == "the node takes no messages now: low on memory"
    assert press.stage("7/0/1?piece=0", rows("q", b"a")) == {"rows": 1}  # it is there already
    line = press.send("POST", f"{BASE}/7/commit", b'{"parts": [[0, 1, 1]]}')
    for _ in range(5):
        press.advance()
    assert line.waits
    assert press.bodies() == ""
    press.broker.alarms.clear("low on memory")
    assert line.answer().content == {"published": 1, "unroutable": 0, "repeated": False}


def test_nobody_is_told_before_it_is_on_disk() -> None:
    press = Press(held=True)
    press.site.settle()
    press.land()
    lines = [press.send("POST", f"{BASE}/7/0/1?piece=0", rows("q", b"a")) for _ in range(2)]
    press.advance(1)
    assert all(line.waits for line in lines)
    press.site.store.land()
    assert not lines[0].waits
    press.land()
    assert [line.answer().content for line in lines] == [{"rows": 1}] * 2
    line = press.send("POST", f"{BASE}/7/commit", b'{"parts": [[0, 1, 1]]}')
    press.advance(1)
    assert press.bodies() == "a"
    assert line.waits
    press.land()
    assert line.answer().status == 200


def test_large_pieces_are_taken_a_portion_at_a_time_and_others_wait_for_their_turn(press: Press) -> None:
    large = press.send("POST", f"{BASE}/7/0/1?piece=0", 2 * rows("q", *[b"x"] * 2500))
    small = press.send("POST", f"{BASE}/7/1/1?piece=0", rows("q", b"small"))
    assert large.waits
    assert press.state()["staged"] == {}
    assert small.answer().content == {"rows": 1}
    assert large.answer().content == {"rows": 5000}
    press.commit(7, [0, 1, 5000], [1, 1, 1])
    assert press.bodies().endswith("x x small")
    assert press.queue.ready == 5001


def test_a_piece_whose_client_has_gone_is_given_up(press: Press) -> None:
    press.stage("7/1/1?piece=0", rows("q", b"other"))
    line = press.send("POST", f"{BASE}/7/0/1?piece=0", 2 * rows("q", *[b"x"] * 2500))
    line.connection.lost()
    for _ in range(5):
        press.advance()
    assert press.state()["staged"] == {"7": 1}
    assert press.stage("7/0/1?piece=0", rows("q", b"a")) == {"rows": 1}
    press.commit(7, [0, 1, 1], [1, 1, 1])
    assert press.bodies() == "a other"


def test_a_batch_that_is_committed_while_a_piece_comes_in_does_not_get_it(press: Press) -> None:
    press.stage("7/1/1?piece=0", rows("q", b"other"))
    line = press.send("POST", f"{BASE}/7/0/1?piece=0", 2 * rows("q", *[b"x"] * 2500))
    press.commit(7, [1, 1, 1])
    assert line.answer().content == {"rows": 0, "repeated": True}
    assert press.state()["staged"] == {}
    assert press.bodies() == "other"


def test_a_repeated_piece_that_is_dropped_meanwhile_does_not_come_back_empty(press: Press) -> None:
    press.stage("7/0/1?piece=0", rows("q", b"a"))
    other = press.send("POST", f"{BASE}/8/0/1?piece=0", 2 * rows("q", *[b"x"] * 2500))
    again = press.send("POST", f"{BASE}/7/0/1?piece=0", rows("q", b"a"))
    assert press.ask("DELETE", f"{BASE}/7").content == {"dropped": 1}
    assert again.answer().content == {"rows": 1}  # it came before
    assert other.answer().content == {"rows": 5000}
    assert press.state()["staged"] == {"8": 5000}
    assert press.stage("7/0/1?piece=0", rows("q", b"a")) == {"rows": 1}


def test_a_piece_for_a_virtual_host_that_is_deleted_meanwhile_brings_nothing_back(press: Press) -> None:
    messages = [Message(ENCODING, "", f"k{n}", b"\0\0", b"x") for n in range(5000)]
    line = press.send("POST", f"{BASE}/7/0/1?piece=0", packed(messages))
    press.broker.delete_virtual_host("/")
    assert line.answer().refusal == (404, "vhost / not found")
    press.broker.add_virtual_host("/")
    line = press.send("POST", f"{BASE}/7/0/1?piece=0", packed(messages))
    assert line.answer().status == 403  # its permissions went as well
    assert not [key for key in press.site.objects if "staging" in key]


def test_who_waits_for_a_staging_that_goes_with_its_virtual_host_is_told() -> None:
    press = Press(x_max_length=1, x_overflow="reject-publish")
    press.stage("7/0/1?piece=0", rows("q", b"a", b"b"))
    waiting = press.send("POST", f"{BASE}/7/commit", b'{"parts": [[0, 1, 2]]}')
    coming = press.send("POST", f"{BASE}/8/0/1?piece=0", 2 * rows("q", *[b"x"] * 2500))
    press.broker.delete_virtual_host("/")
    for line in (waiting, coming):
        assert line.answer().refusal == (404, "no staging 'job' in vhost '/'")
    assert not [key for key in press.again().site.objects if "staging" in key]


# What is refused.

TOO_LONG = "n" * 256
REFUSED = {
    "7/0/1": (400, "parameter 'piece' is missing"),
    "7/0/1?piece=-1": (400, f"parameter 'piece' is '-1', not a whole number from 0 to {NOTES_MAX}"),
    "7/0/1?piece=0&mandatory=yes": (400, "parameter 'mandatory' is 'yes', not true or false"),
    "7/0/1?piece=0&x=1": (400, "unknown parameter 'x'; known are piece, mandatory"),
    "-7/0/1?piece=0": (
        400,
        "the batch in the path is '-7', not a whole number from 0 to 4611686018427387904",
    ),
    "7/x/1?piece=0": (
        400,
        "the partition in the path is 'x', not a whole number from 0 to 4611686018427387904",
    ),
    "7/0/4611686018427387905?piece=0": (
        400,
        "the attempt in the path is '4611686018427387905', not a whole number from 0 to 4611686018427387904",
    ),
}


@pytest.mark.parametrize("path", REFUSED)
def test_a_piece_that_is_no_piece_is_refused(press: Press, path: str) -> None:
    assert press.ask("POST", f"{BASE}/{path}", rows("q", b"a")).refusal == REFUSED[path]
    assert not stagings_of(press.host)


COMMIT = 'a commit says {"parts": [[partition, attempt, rows], ...]}'
NO_COMMITS = {
    b"{": f"{COMMIT}, and this is no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    b"[]": COMMIT,
    b"{}": COMMIT,
    b'{"parts": {}}': COMMIT,
    b'{"parts": [], "more": 1}': COMMIT,
    b'{"parts": [[0, 1]]}': f"{COMMIT}, each a whole number from 0 to 4611686018427387904",
    b'{"parts": [[0, 1, true]]}': f"{COMMIT}, each a whole number from 0 to 4611686018427387904",
    b'{"parts": [[0, -1, 1]]}': f"{COMMIT}, each a whole number from 0 to 4611686018427387904",
    b'{"parts": [[0, 1, 1], [0, 2, 1]]}': "partition 0 is given twice",
}


@pytest.mark.parametrize("body", NO_COMMITS)
def test_a_commit_that_is_none_is_refused(press: Press, body: bytes) -> None:
    press.stage("7/0/1?piece=0", rows("q", b"a"))
    assert press.ask("POST", f"{BASE}/7/commit", body).refusal == (400, NO_COMMITS[body])
    assert press.state()["batch"] == -1


@pytest.mark.parametrize("body", [b"\xff", b"[" * 100_000, b"1" * 5000])
def test_a_commit_that_python_cannot_read_is_refused(press: Press, body: bytes) -> None:
    response = press.ask("POST", f"{BASE}/7/commit", body)
    assert response.status == 400
    assert response.content["reason"].startswith(COMMIT)


def test_a_staging_is_for_the_user_who_made_it_and_for_administrators(press: Press) -> None:
    press.stage("7/0/1?piece=0", rows("q", b"a"))
    asked = [
        ("GET", BASE, b""),
        ("POST", f"{BASE}/7/0/1?piece=1", rows("q", b"b")),
        ("POST", f"{BASE}/7/commit", b'{"parts": []}'),
        ("DELETE", f"{BASE}/7", b""),
        ("DELETE", BASE, b""),
    ]
    for method, path, body in asked:
        assert press.ask(method, path, body, user="other").refusal == (
            403,
            "staging 'job' in vhost '/' is not of user 'other'",
        )
    assert press.ask("GET", BASE, user="boss").content == press.state()
    after = press.again()
    assert after.ask("GET", BASE, user="other").status == 403
    assert after.ask("DELETE", BASE, user="boss").content == {"dropped": 1}


def test_nobody_sees_a_virtual_host_that_he_may_not_enter(press: Press) -> None:
    for host in ("closed", "none"):
        for method, path in (("GET", "job"), ("DELETE", "job"), ("POST", "job/7/0/1?piece=0")):
            assert press.ask(method, f"/api/leveret/staging/{host}/{path}", rows("q", b"a")).refusal == (
                403,
                f"access to vhost '{host}' refused for user 'spark'",
            )


def test_names_are_of_any_letters_and_not_too_long(press: Press) -> None:
    assert press.ask("GET", f"{PATH}/{TOO_LONG}").refusal == (
        400,
        "the name of a staging has 256 octets, not 1 to 255",
    )
    assert press.ask("POST", f"{PATH}/%2F%00%C3%A9/0/commit", b'{"parts": []}').status == 200
    assert "/\0é" in stagings_of(press.again().host)


def test_there_are_so_many_stagings_and_pieces_and_no_more(press: Press) -> None:
    for name in range(STAGINGS_MAX):
        stagings_of(press.host)[str(name)] = Staging(press.host, str(name), "spark")
    for path, body in (("0/0/0?piece=0", rows("q", b"a")), ("0/commit", b'{"parts": []}')):
        assert press.ask("POST", f"{BASE}/{path}", body).refusal == (
            507,
            "there are 1000 stagings in vhost '/' already",
        )
    staging = stagings_of(press.host)["job"] = stagings_of(press.host).pop("0")
    staging.log.sequences.update((str(number), 0) for number in range(NOTES_MAX))
    response = press.ask("POST", f"{BASE}/0/0/0?piece=0", rows("q", b"a"))
    assert response.status == 507
    assert "has 100000 pieces; send larger ones, or commit" in response.content["reason"]


# What the broker makes of properties.


def test_facts_come_from_the_properties_and_not_from_what_blocks_say(press: Press) -> None:
    properties = ENCODING.write(Properties(headers={"BCC": ["q"], "n": 1}, ttl_ms=5000))
    liar = Message(ENCODING, "", "none", properties, b"a", Facts(user_id="root", cc=("other",), priority=9))
    press.stage("7/0/1?piece=0", packed([liar], offset=1 << 62))
    assert press.commit(7, [0, 1, 1]) == {"published": 1, "unroutable": 0, "repeated": False}
    (delivery,) = press.queue.waiting()
    message = delivery.message
    assert ENCODING.headers(message.properties) == {"n": 1}
    facts = message.facts
    assert (facts.durable, facts.ttl_ms, facts.cc, facts.bcc, facts.priority) == (False, 5000, (), ("q",), 0)
    assert (facts.user_id, message.notes) == (None, None)
    assert 4 < delivery.expires_at - press.broker.now <= 5


def test_who_asks_for_pieces_all_the_time_is_not_logged(
    press: Press, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        press.stage("7/0/1?piece=0", rows("q", b"a"))
    assert not [
        record for record in caplog.records if "POST" in record.getMessage() or "PUT" in record.getMessage()
    ]


def test_requests_that_come_byte_by_byte_are_the_same(press: Press) -> None:
    line = press.line
    for octet in request("POST", f"{BASE}/7/0/1?piece=0", rows("q", b"a"), "spark:sesame"):
        line.connection.receive(bytes([octet]), press.broker.now)
    press.site.settle()
    assert line.answer().content == {"rows": 1}
