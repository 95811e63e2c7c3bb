"""Clients of a Live Board server."""
