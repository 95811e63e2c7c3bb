"""Sends every change of a board to all its viewers.

`Hub.admit` finds a place for a viewer, and `Hub.add_viewer` adds it: frames are written to its `Sink`. `ProblemError`
says that a viewer is refused.
"""
