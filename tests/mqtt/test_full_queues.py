"""A queue that is full costs a publisher no more a message, however many come in one read."""

from __future__ import annotations

from leveret.protocols.mqtt.codec.packets import Publish
from tests.harness.bench import ClientBench
from tests.harness.call_count import calls
from tests.harness.plain import plain_only
from tests.mqtt.peer import Peer

COUNT = 200


@plain_only
def test_what_a_full_queue_takes_singly_is_not_tried_together_each_time() -> None:
    bench = ClientBench()
    queue = bench.host.declare_queue("last", arguments={"x-max-length": 1})
    bench.host.bind(bench.host.exchange("amq.topic"), queue, "room.1")
    peer = Peer(bench).connect("me")
    octets = b"".join(Publish("room/1", b"%d" % number).encode(5) for number in range(COUNT))
    peer.send_bytes(octets)
    cost = calls(lambda: peer.send_bytes(octets))
    assert cost["Broker.publish_run"] <= 2
    assert (queue.ready, queue.published) == (1, 2 * COUNT)
