"""What several protocols share, on the same three floors: codec, machine and broker."""
