"""Boards, events and rankings: pure rules, without I/O."""
