"""Tests of `live/cli`."""
