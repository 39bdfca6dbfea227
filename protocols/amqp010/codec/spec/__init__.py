"""The AMQP 0-10 protocol as data, and the generator that turns it into `commands.py`."""
