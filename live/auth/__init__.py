"""Authentication and rate limits: API keys, the admin API key, and who sends a request.

A request that is refused raises `ProblemError`. `StoreUnavailableError` says that its credentials can't be checked now.
"""
