"""The AMQP 0-10 state machine: connection, session and execution layers. It knows no broker, socket or clock."""
