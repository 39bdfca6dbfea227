"""AMQP 0-9-1 on the broker: what each method does to the core, and what the core's answers become."""
