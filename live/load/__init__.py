"""The load test: it sends likes, watches the board, and measures how long a like takes to become visible."""
