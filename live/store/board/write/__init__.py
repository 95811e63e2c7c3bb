"""Plans batches of events and writes them."""
