"""A running node: its start and end, its sockets, and the loop between them and the broker."""
