"""The HTTP and WebSocket protocols that plug into uvicorn, with fast paths that bypass ASGI."""
