"""Authentication and authorisation: users, passwords, tokens, permissions, and guards against guessing."""
