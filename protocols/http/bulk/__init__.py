"""Bulk access over HTTP: blocks of streams and leases, staged and direct publishing, prepared branches."""
