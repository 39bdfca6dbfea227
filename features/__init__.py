"""Features on top of queues and exchanges; they know the core and what is durable, and not the server."""
