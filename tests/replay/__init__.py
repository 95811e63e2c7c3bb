"""Tests of live/replay."""
