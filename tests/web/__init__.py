"""Tests of live/web."""
