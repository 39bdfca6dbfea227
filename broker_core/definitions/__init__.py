"""RabbitMQ's definitions files: read to records, put into a broker, written."""
