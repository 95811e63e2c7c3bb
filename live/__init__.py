"""A real-time ranking server: producers POST events, and every viewer sees an exact ranking."""

__version__ = "0.2.0.dev0"
