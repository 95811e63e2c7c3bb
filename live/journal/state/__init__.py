"""Computes the state of a board after any entry of its journal, and its ranking."""
