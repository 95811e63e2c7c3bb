"""Tests of `live/process`."""
