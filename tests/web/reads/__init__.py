"""Tests of what clients read."""
