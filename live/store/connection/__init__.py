"""The store itself: its client, its scripts, and whether it lost data."""
