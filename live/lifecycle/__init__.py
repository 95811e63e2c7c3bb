"""Boards that come, change and go while the server runs."""
