"""Tests of `live/system`."""
