"""The programs that run a broker: node, cluster, command line; they know features, what is durable and the core."""
