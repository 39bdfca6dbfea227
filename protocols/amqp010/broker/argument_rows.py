"""The table of queue arguments that 0-10 clients use, which `arguments.py` translates into the core's.

It is apart from the translation because a node needs it at the start, before the first connection of 0-10.
"""

from __future__ import annotations

from typing import Final

from leveret.arguments.row import Effect, Row, Section, by_name

ALERTS: Final = "watch the metrics"
FLOW: Final = "publishers are slowed down by alarms and limits"

QUEUE_ROWS: Final = (
    Row(name="qpid.max_count", about="At most so many messages wait; 0 is no limit."),
    Row(name="qpid.max_size", about="The bodies of waiting messages have at most so many bytes; 0 is no limit."),
    Row(name="qpid.policy_type", about="How a full queue treats one more message."),
    Row(name="x-qpid-capacity", about="Beyond so many bytes those that publish to the queue have to wait."),
    Row(name="x-qpid-flow-resume-capacity", about="At so many bytes they go on."),
    Row(name="qpid.last_value_queue", about="Of messages with one value of `qpid.LVQ_key` only the newest waits."),
    Row(name="qpid.last_value_queue_no_browse", about="The same as `qpid.last_value_queue`."),
    Row(name="qpid.last_value_queue_key", about="Of messages with one value of this header only the newest waits."),
    Row(name="qpid.priorities", about="The number of levels for the ten priorities."),
    Row(name="x-qpid-priorities", about="An older name of `qpid.priorities`."),
    Row(name="qpid.fairshare", about="How many messages of a level are delivered in a row while lower ones wait."),
    Row(name="qpid.fairshare-N", about="The share of level N."),
    Row(name="x-qpid-fairshare", about="An older name of `qpid.fairshare`."),
    Row(name="x-qpid-fairshare-N", about="An older name of `qpid.fairshare-N`."),
    Row(name="qpid.group_header_key", about="The header by which messages are grouped."),
    Row(name="qpid.shared_msg_group", about="Groups go to one consumer at a time."),
    Row(name="qpid.queue_msg_sequence", about="The queue writes each message's number into this header."),
    Row(name="no-local", about="Messages from the connection of the owner or the exclusive subscriber are not taken."),
    Row(name="qpid.auto_delete_timeout", about="Seconds from the last subscriber's leaving to the deletion."),
    *(
        Row(name=name, about=about, effect=Effect.NO_EFFECT, instead=instead)
        for name, about, instead in (
            ("qpid.alert_count", "The number of messages that raises an alert.", ALERTS),
            ("qpid.alert_count_down", "The number of messages below which the alert is over.", ALERTS),
            ("qpid.alert_count_up", "The number of messages that raises an alert.", ALERTS),
            ("qpid.alert_repeat_gap", "The seconds between two alerts.", ALERTS),
            ("qpid.alert_size", "The bytes that raise an alert.", ALERTS),
            ("qpid.alert_size_down", "The bytes below which the alert is over.", ALERTS),
            ("qpid.alert_size_up", "The bytes that raise an alert.", ALERTS),
            ("qpid.browse-only", "Subscribers can only browse.", "let subscribers acquire nothing"),
            ("qpid.filter", "A condition on what the queue takes.", "bind to a headers exchange"),
            ("qpid.flow_resume_count", "The number of messages below which publishers go on.", FLOW),
            ("qpid.flow_resume_size", "The bytes below which publishers go on.", FLOW),
            ("qpid.flow_stop_count", "The number of messages that stops publishers.", FLOW),
            ("qpid.flow_stop_size", "The bytes that stop publishers.", FLOW),
            ("qpid.ive", "A queue that is bound later gets the last message.", "use x-recent-history"),
            ("qpid.msg_sequence", "The exchange numbers messages.", "use qpid.queue_msg_sequence"),
            ("qpid.paging", "Waiting messages are on disk.", "every queue pages messages out when memory is needed"),
            ("qpid.trace.exclude", "Federation does not take messages with this trace.", "there is no federation"),
            ("qpid.trace.id", "Federation marks messages with this trace.", "there is no federation"),
        )
    ),
)  # fmt: skip

CONSUMER_ROWS: Final = by_name(
    Row(name="x-priority", about="Subscriptions of a higher priority get messages first."),
    Row(
        name="x-consumer-timeout",
        about="Transfers have to be accepted within so many milliseconds; 0 is no limit.",
    ),
    Row(name="x-apache-selector", about="A condition on messages."),
    Row(name="x-stream-group", about="The group of consumers of a stream, of which one at a time is active."),
    Row(name="x-stream-offset", about="The message of a stream to begin with."),
)


def sections() -> tuple[Section, ...]:
    return (
        Section(
            "Arguments of queues (AMQP 0-10)", "Names that qpidd has; they become the core's.", QUEUE_ROWS
        ),
        Section(
            "Arguments of subscriptions (AMQP 0-10)",
            "Arguments of `message.subscribe`.",
            tuple(CONSUMER_ROWS.values()),
        ),
    )
