"""The wire format of AMQP 0-9-1: frames, methods, field tables and content properties, as pure functions."""
