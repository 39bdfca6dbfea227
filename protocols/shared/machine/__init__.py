"""What the state machines of several AMQP versions share: heartbeats, deadlines, states and how a connection ends."""
