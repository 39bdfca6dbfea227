"""Unsettled maps: what the links of AMQP 1.0 have not settled, kept for links that are resumed."""
