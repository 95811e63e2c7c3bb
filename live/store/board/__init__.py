"""One board in the store: what writes, reads, rotates, moderates and audits it."""
