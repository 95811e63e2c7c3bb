"""Tests of `live/load`."""
