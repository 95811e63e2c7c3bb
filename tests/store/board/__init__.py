"""Tests of `live/store/board`."""
