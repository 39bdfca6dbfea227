"""The AMQP 1.0 state machine: connection, sessions and links. It knows no broker, socket or clock."""
