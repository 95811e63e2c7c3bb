"""HTTP/1.1: reads requests, answers them in order, and counts events on a fast path."""
