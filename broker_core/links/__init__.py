"""Links of AMQP 1.0 that outlive the node, as far as the store knows them."""
