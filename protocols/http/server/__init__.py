"""The HTTP front-end on the broker: requests to routes, permissions, and answers, also long ones."""
