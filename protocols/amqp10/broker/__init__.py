"""AMQP 1.0 on the broker: the effect of links, messages and outcomes on the core, and the answers to the peer."""
