"""The AMQP 0-9-1 state machine: what may come when. It knows no broker, socket or clock."""
