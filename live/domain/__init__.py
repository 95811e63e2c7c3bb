"""Boards, events and rankings: pure rules, without I/O.

A function that parses or checks a text raises `ValueError`, whose message says what to write instead, one line for each
mistake. A request is refused with a `ProblemError`, and a file or a command with a `SetupError`.
"""
