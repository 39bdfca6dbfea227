"""AMQP 0-10 on the broker: what each command does to the core, and what the core's answers become."""
