"""The AMQP 0-9-1 specification as data, and the generator that turns it into `methods.py`."""
