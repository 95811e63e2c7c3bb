"""Tests of `live/store/board/read`."""
