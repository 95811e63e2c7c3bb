"""Tests of `live/web`."""
