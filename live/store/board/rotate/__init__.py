"""Subtract what has left the window of a board, when it is due."""
