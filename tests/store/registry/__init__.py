"""Tests of `live/store/registry`."""
