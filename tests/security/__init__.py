"""Attacks that once worked, or that must never work, against real servers."""
