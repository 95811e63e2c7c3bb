"""Tests of live/store."""
