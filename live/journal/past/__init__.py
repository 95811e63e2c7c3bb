"""Questions about the past of boards, answered in other processes.

A function that answers one raises `NoPastError` if the journal does not cover the time.
"""
