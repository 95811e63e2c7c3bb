"""Tests of `live/client`."""
