"""HTTP/1.1: reads requests, answers them in order, and takes events without ASGI."""
