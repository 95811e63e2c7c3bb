"""Tests of `live/http`."""
