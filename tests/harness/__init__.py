"""Shared helpers of the tests: stores, servers, viewers, producers, models, and the runner of mutants."""
