"""Tests of `live/domain`."""
