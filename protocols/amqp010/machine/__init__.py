"""The AMQP 0-10 state machine: the layers of connection, session and execution. It knows no broker, socket or clock."""
