"""AMQP 0-10 on the broker: commands become calls of the core, and the core's answers become commands and results."""
