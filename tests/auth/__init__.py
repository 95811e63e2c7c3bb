"""Tests of `live/auth`."""
