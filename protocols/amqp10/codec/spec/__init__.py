"""The AMQP 1.0 protocol as data, and the generator that turns it into `performatives.py`."""
