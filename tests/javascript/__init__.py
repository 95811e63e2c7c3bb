"""Tests of the page's JavaScript without a browser."""
