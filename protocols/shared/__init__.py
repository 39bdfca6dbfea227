"""What several protocols have in common."""
