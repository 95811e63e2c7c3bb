"""Tests of `live/web/api`."""
