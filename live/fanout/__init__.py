"""Sends every change of a board to all its viewers.

`Hub.watch` gives a viewer, whose method `next_frame` waits for the next message. `engine/` reads boards, compares their
pages and sends the frames.
"""
