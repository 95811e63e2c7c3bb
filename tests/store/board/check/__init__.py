"""Tests of `live/store/board/check`."""
