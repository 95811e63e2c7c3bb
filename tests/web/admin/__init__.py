"""Tests of `live/web/admin`."""
