"""The load test: producers, viewers, and how long a like takes to be seen."""
