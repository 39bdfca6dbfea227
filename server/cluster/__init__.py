"""Nodes of one cluster: one serves, the others stand by and pass clients on to it."""
