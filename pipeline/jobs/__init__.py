"""Recurring jobs between a broker and a data lake; each is a command and a few functions (docs/pipeline.md)."""
