"""AMQP 1.0 on the broker: what links, messages and outcomes do to the core, and what its answers become."""
