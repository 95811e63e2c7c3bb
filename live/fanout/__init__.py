"""Sends every change of a board to all its viewers.

`Hub.watch` gives a viewer, whose `next_frame` waits for its messages. `engine/` is what reads, compares and sends.
"""
