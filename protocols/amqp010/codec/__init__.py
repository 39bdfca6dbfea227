"""AMQP 0-10 as bytes: types, commands, structs and frames, to values and back. Pure functions."""
