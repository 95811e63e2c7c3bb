"""Tests of live/fanout."""
