"""Tests of responses, middleware and static files."""
