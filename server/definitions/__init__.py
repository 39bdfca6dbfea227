"""RabbitMQ's definitions files: reading into records, import into a broker, and export."""
