"""AMQP 0-10 types, commands, structs and frames: decode bytes as values and encode them. Pure functions."""
