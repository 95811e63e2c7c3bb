"""Tests of `live/store/board/manage`."""
