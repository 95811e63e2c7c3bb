"""A real-time live board: events in over HTTP, an exact rolling ranking out to every browser."""

__version__ = "0.1.0"
