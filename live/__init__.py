"""A real-time ranking server: events in over HTTP, an exact ranking out to every browser."""

__version__ = "0.1.0"
