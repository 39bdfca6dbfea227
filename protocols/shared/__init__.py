"""The code that several protocols share, in the same three packages: codec, machine and broker."""
