"""The requests of a board's scripts."""
