"""Who may do what: API keys, the admin key and rate limits."""
