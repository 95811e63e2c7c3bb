"""Tests of `live/send`."""
