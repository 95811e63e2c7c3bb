"""The HTTP and WebSocket protocols that plug into uvicorn. They answer events and plain reads without ASGI."""
