"""Tests of `live/boards`."""
