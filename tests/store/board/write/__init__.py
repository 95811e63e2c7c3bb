"""Tests of `live/store/board/write`."""
