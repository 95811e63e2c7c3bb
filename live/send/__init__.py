"""`live send`: sends a file of events to a running server, in batches, and continues where it stopped."""
