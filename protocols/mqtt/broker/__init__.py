"""MQTT on the broker: sessions, subscriptions and retained messages are queues, bindings and records of the core."""
