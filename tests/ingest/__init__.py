"""Tests of live/ingest."""
