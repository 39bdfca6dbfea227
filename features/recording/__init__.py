"""Recordings: what happens in a virtual host goes into a file, and comes out of it again."""
