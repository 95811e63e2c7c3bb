"""The load test: it sends likes, watches the board, and measures how long a like takes to become visible.

Whatever makes the test impossible, such as a wrong flag or a server that refuses, raises `SetupError`.
"""
