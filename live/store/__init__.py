"""The store of Live Board: the only package that uses the Redis protocol."""
