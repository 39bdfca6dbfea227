"""The parts that several front-ends share on the broker's side: login, the outbox, and acknowledgement time-outs."""
