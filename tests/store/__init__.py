"""Tests of `live/store`."""
