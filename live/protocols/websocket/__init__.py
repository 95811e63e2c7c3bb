"""WebSockets of producers and of viewers."""
