"""AMQP 1.0 as bytes: types, performatives, frames and message sections, to values and back. Pure functions."""
