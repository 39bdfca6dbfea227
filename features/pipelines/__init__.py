"""Pipelines that the node runs: processes that take streams and queues to tables in a lake."""
