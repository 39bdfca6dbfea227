"""RabbitMQ's management over AMQP 1.0: requests on a pair of links."""
