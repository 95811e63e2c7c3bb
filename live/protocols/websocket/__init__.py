"""The WebSockets of viewers."""
