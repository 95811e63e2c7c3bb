"""Tests of live/lifecycle."""
