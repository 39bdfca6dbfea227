"""The AMQP 1.0 specification as data, and the generator that turns it into `performatives.py`."""
