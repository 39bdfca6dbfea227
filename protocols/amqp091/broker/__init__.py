"""AMQP 0-9-1 on the broker: the effect of each method on the core, and the frames for the core's answers."""
