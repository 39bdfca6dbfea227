"""What is done again and again between a broker and a lake, each a command and a few functions (docs/pipeline.md)."""
