"""Attacks that once worked, or must never work, on real servers."""
