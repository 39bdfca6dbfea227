"""Answers have the fields of RabbitMQ's, as those of 3.10 were seen to be, but for what has no meaning here."""

from __future__ import annotations

from typing import Final

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.values import Json

from .lobby import Lobby

ERLANG: Final = "garbage_collection reductions reductions_details"

# Of each answer: RabbitMQ's fields; those of them that are not told; those that are told besides.
SHAPES: Final = {
    "queue": (
        "arguments auto_delete backing_queue_status consumer_capacity consumer_utilisation consumers durable "
        "effective_policy_definition exclusive exclusive_consumer_tag garbage_collection head_message_timestamp "
        "idle_since memory message_bytes message_bytes_paged_out message_bytes_persistent message_bytes_ram "
        "message_bytes_ready message_bytes_unacknowledged message_stats messages messages_details "
        "messages_paged_out messages_persistent messages_ram messages_ready messages_ready_details "
        "messages_ready_ram messages_unacknowledged messages_unacknowledged_details messages_unacknowledged_ram "
        "name node operator_policy policy recoverable_slaves reductions reductions_details "
        "single_active_consumer_tag state type vhost",
        f"{ERLANG} backing_queue_status "
        "message_bytes_persistent message_bytes_ram messages_persistent "
        "messages_ready_ram messages_unacknowledged_ram recoverable_slaves",
        "dead_letters_wait message_bytes_delayed message_bytes_dlx messages_delayed messages_dlx next_delayed_at "
        "messages_unreadable warnings",
    ),
    "message_stats of a queue": (
        "ack ack_details deliver deliver_details deliver_get deliver_get_details deliver_no_ack "
        "deliver_no_ack_details get get_details get_empty get_empty_details get_no_ack get_no_ack_details publish "
        "publish_details redeliver redeliver_details",
        "",
        "",
    ),
    "exchange": (
        "arguments auto_delete durable incoming internal message_stats name outgoing type "
        "user_who_performed_action vhost",
        "user_who_performed_action",
        "policy warnings",
    ),
    "message_stats of an exchange": ("publish_in publish_in_details publish_out publish_out_details", "", ""),
    "binding": (
        "source vhost destination destination_type routing_key arguments properties_key",
        "",
        "warnings",
    ),
    "connection": (
        "auth_mechanism channel_max channels client_properties connected_at frame_max garbage_collection host name "
        "node peer_cert_issuer peer_cert_subject peer_cert_validity peer_host peer_port port protocol recv_cnt "
        "recv_oct recv_oct_details reductions reductions_details send_cnt send_oct send_oct_details send_pend ssl "
        "ssl_cipher ssl_hash ssl_key_exchange ssl_protocol state timeout type user user_provided_name "
        "user_who_performed_action vhost",
        ERLANG,
        "container_id peer_process unfinished_bytes websocket",
    ),
    "connection of a user": ("name vhost user node", "", ""),
    "channel": (
        "acks_uncommitted confirm connection_details consumer_count consumer_details deliveries garbage_collection "
        "global_prefetch_count idle_since message_stats messages_unacknowledged messages_uncommitted "
        "messages_unconfirmed name node number pending_raft_commands prefetch_count publishes reductions "
        "reductions_details state transactional user user_who_performed_action vhost",
        f"{ERLANG} deliveries idle_since pending_raft_commands publishes",
        "",
    ),
    "message_stats of a channel": (
        "ack ack_details confirm confirm_details deliver deliver_details deliver_get deliver_get_details "
        "deliver_no_ack deliver_no_ack_details drop_unroutable drop_unroutable_details get get_details get_empty "
        "get_empty_details get_no_ack get_no_ack_details publish publish_details redeliver redeliver_details "
        "return_unroutable return_unroutable_details",
        "drop_unroutable drop_unroutable_details get_empty get_empty_details redeliver redeliver_details",
        "",
    ),
    "consumer": (
        "arguments ack_required active activity_status channel_details consumer_tag exclusive prefetch_count queue",
        "",
        "consumer_timeout slow warnings",
    ),
    "channel_details": (
        "connection_name name node number peer_host peer_port user",
        "",
        "user_provided_name",
    ),
    "overview": (
        "management_version rates_mode sample_retention_policies exchange_types product_version product_name "
        "rabbitmq_version cluster_name erlang_version erlang_full_version release_series_support_status "
        "disable_stats enable_queue_totals message_stats churn_rates queue_totals object_totals "
        "statistics_db_event_queue node listeners contexts",
        "erlang_version erlang_full_version release_series_support_status",
        "leveret_version default_queue_type",
    ),
    "message_stats of all": (
        "ack ack_details confirm confirm_details deliver deliver_details deliver_get deliver_get_details "
        "deliver_no_ack deliver_no_ack_details disk_reads disk_reads_details disk_writes disk_writes_details "
        "drop_unroutable drop_unroutable_details get get_details get_empty get_empty_details get_no_ack "
        "get_no_ack_details publish publish_details redeliver redeliver_details return_unroutable "
        "return_unroutable_details",
        "disk_reads disk_reads_details disk_writes disk_writes_details",
        "",
    ),
    "churn_rates": (
        "channel_closed channel_closed_details channel_created channel_created_details connection_closed "
        "connection_closed_details connection_created connection_created_details queue_created "
        "queue_created_details queue_declared queue_declared_details queue_deleted queue_deleted_details",
        "",
        "",
    ),
    "queue_totals": (
        "messages messages_details messages_ready messages_ready_details messages_unacknowledged "
        "messages_unacknowledged_details",
        "",
        "",
    ),
    "object_totals": ("channels connections consumers exchanges queues", "", ""),
    "listener": ("node protocol ip_address port socket_opts", "", ""),
    "exchange type": ("name description enabled", "", ""),
    "node": (
        "partitions os_pid fd_total sockets_total mem_limit mem_alarm disk_free_limit disk_free_alarm proc_total "
        "rates_mode uptime run_queue processors exchange_types auth_mechanisms applications contexts log_files "
        "db_dir config_files enabled_plugins mem_calculation_strategy name type running mem_used mem_used_details "
        "fd_used fd_used_details sockets_used sockets_used_details proc_used disk_free disk_free_details "
        "context_switches connection_created connection_created_details connection_closed "
        "connection_closed_details channel_created channel_created_details channel_closed channel_closed_details "
        "queue_declared queue_declared_details queue_created queue_created_details queue_deleted "
        "queue_deleted_details",
        "",
        "being_drained processor_ms processor_ms_details",
    ),
}


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Json]]:
    """One of each, of a broker where a message has gone all its way."""
    lobby = Lobby()
    client = lobby.client()
    channel = client.channel(1)
    channel.call(m.ConfirmSelect())
    channel.call(m.QueueDeclare("q", durable=True))
    channel.call(m.QueueBind("q", "amq.topic", "a.b"))
    channel.call(m.BasicConsume("q", "tag"))
    channel.publish("amq.topic", "a.b", b"hello")
    name = "127.0.0.1:40000%20-%3E%20127.0.0.1:5672"
    overview = lobby.get("/api/overview")
    queue, exchange = lobby.get("/api/queues")[0], lobby.get("/api/exchanges/%2F/amq.topic")
    one_channel, consumer = lobby.get(f"/api/channels/{name}%20(1)"), lobby.get("/api/consumers")[0]
    return {
        "queue": queue,
        "message_stats of a queue": queue["message_stats"],
        "exchange": exchange,
        "message_stats of an exchange": exchange["message_stats"],
        "binding": lobby.get("/api/bindings")[0],
        "connection": lobby.get(f"/api/connections/{name}"),
        "connection of a user": lobby.get("/api/connections/username/guest")[0],
        "channel": one_channel,
        "message_stats of a channel": one_channel["message_stats"],
        "consumer": consumer,
        "channel_details": consumer["channel_details"],
        "overview": overview,
        "message_stats of all": overview["message_stats"],
        "churn_rates": overview["churn_rates"],
        "queue_totals": overview["queue_totals"],
        "object_totals": overview["object_totals"],
        "listener": overview["listeners"][0],
        "exchange type": overview["exchange_types"][0],
        "node": lobby.get("/api/nodes/leveret"),
    }


@pytest.mark.parametrize("what", SHAPES)
def test_an_answer_has_the_fields_of_rabbitmqs(answers: dict[str, dict[str, Json]], what: str) -> None:
    seen, left_out, more = (set(fields.split()) for fields in SHAPES[what])
    assert left_out <= seen
    assert set(answers[what]) == seen - left_out | more


def test_details_of_one_queue_are_those_of_the_list_and_more() -> None:
    lobby = Lobby()
    lobby.queue_with(0)
    listed, one = lobby.get("/api/queues")[0], lobby.get("/api/queues/%2F/q")
    assert set(one) - set(listed) == {"consumer_details", "deliveries", "incoming"}
    assert listed.items() <= one.items()


def test_without_statistics_only_what_is_known_at_once_is_told() -> None:
    lobby = Lobby()
    lobby.queue_with(1)
    few = lobby.get("/api/queues?disable_stats=true&enable_queue_totals=true")[0]
    assert few == {
        "arguments": {},
        "auto_delete": False,
        "durable": True,
        "exclusive": False,
        "messages": 1,
        "messages_ready": 1,
        "messages_unacknowledged": 0,
        "name": "q",
        "node": "leveret",
        "state": "running",
        "type": "classic",
        "vhost": "/",
    }
