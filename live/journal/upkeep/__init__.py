"""Maintains the rows in SQL: checkpoints, the archive, forgetting old entries, and finding damage."""
