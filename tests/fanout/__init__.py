"""Tests of `live/fanout`."""
