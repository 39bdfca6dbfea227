"""The machine of MQTT: what may come when on a connection, and the packet identifiers of a session."""
