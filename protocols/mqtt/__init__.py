"""MQTT 3.1.1 and 5: packets, a machine that knows the protocol and no broker, and what connects it to the core."""
