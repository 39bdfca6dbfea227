"""AMQP 0-9-1 as bytes: frames, methods, field tables and content properties, to values and back. Pure functions."""
