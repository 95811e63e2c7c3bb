"""Tests of `live/ingest`."""
