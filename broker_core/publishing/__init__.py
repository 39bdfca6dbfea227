"""Publishing: the contract of publishers, what they remember of where messages go, and how fast they may be."""
