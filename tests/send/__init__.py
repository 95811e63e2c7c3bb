"""Tests of live/send."""
