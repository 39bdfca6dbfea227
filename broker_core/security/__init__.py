"""Who somebody is, and what he may do: users, passwords, tokens, permissions, and guards against guessing."""
