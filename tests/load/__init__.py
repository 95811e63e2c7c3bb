"""Tests of live/load."""
