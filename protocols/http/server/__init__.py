"""Serve HTTP on the broker: routes, permissions, and answers, also long ones."""
