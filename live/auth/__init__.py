"""Authentication and rate limits: API keys, the admin API key, and who sends a request."""
