"""The AMQP 0-9-1 state machine: the order in which frames and methods may come. It knows no broker, socket or clock."""
