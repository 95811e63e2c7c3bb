"""Tests of `live/network`."""
