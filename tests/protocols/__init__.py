"""Tests of our protocols, and of the plain ASGI routes that give the same answers."""
