"""Tests of `live/store/board/rotate`."""
