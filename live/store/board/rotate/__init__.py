"""Subtracts slots, events and periods that have left the window of a board."""
