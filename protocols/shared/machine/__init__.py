"""The parts that the state machines of several AMQP versions share: heartbeats, deadlines, states and closing."""
