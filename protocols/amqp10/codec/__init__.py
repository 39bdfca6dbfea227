"""The wire format of AMQP 1.0: types, performatives, frames and message sections, as pure functions."""
