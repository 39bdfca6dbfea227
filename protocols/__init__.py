"""The protocols: a package each, and what they share. They know neither each other nor the node that runs them."""
