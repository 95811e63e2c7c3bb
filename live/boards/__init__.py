"""Boards made, changed and removed while the server runs."""
