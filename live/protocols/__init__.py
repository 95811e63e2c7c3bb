"""The classes that are plugged into uvicorn: the hot ways in, without ASGI."""
