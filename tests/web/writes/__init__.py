"""Tests of events and likes."""
