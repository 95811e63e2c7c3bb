"""Tests of `live/store/connection`."""
