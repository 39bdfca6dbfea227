"""Super streams over HTTP: administrators make and delete them."""

from __future__ import annotations

import pytest

from tests.http.desk import Desk

PATH = "/api/leveret/super-streams/%2F/sup"


def test_a_super_stream_is_made_and_deleted_as_a_whole() -> None:
    desk = Desk()
    assert desk.ask(PATH + "?partitions=2", "PUT").content == {"made": ["sup-0", "sup-1"]}
    assert set(desk.broker.virtual_host("/").queues) >= {"sup-0", "sup-1"}
    assert desk.ask(PATH, "DELETE").content == {"deleted": ["sup-0", "sup-1"]}
    assert desk.ask(PATH, "DELETE").status == 404


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_others_than_administrators_are_refused(method: str) -> None:
    desk = Desk()
    assert desk.ask(PATH + "?partitions=2", method, "management:sesame").status == 403
    assert "sup" not in desk.broker.virtual_host("/").exchanges


@pytest.mark.parametrize(
    "query", ["", "?partitions=x", "?partitions=-1", "?partitions=0", "?partitions=9999999999"]
)
def test_a_wrong_number_of_partitions_is_refused(query: str) -> None:
    response = Desk().ask(PATH + query, "PUT")
    assert response.status == 400
    assert "partitions" in str(response.reason)
