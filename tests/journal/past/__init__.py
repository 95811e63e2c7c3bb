"""Boards of the past are what they were."""
