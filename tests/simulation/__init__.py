"""A broker with clients of all protocols, a clock, a network and a disk, in one process and from one seed."""
