"""What several front-ends share on the broker's side: login, the outbox, and time-outs of acknowledgements."""
