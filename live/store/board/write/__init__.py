"""Plan batches of events and write them."""
