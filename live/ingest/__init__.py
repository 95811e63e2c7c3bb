"""Turns the body of a POST or a message into counted events and an answer, for every transport.

A body that is refused as a whole raises `ProblemError`, also `overloaded` if too many events wait already.
"""
