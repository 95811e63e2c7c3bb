"""Tests of the parent and its workers."""
