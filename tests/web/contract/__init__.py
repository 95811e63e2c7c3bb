"""Tests of the documents that describe the API."""
