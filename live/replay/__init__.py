"""`live replay`: sends a file of events to a running server, in batches, going on where it stopped."""
