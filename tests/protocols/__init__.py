"""Tests of the ways in: our protocols, and the plain ASGI routes that give the same answers."""
