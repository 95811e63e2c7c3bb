"""The soak: random faults of all kinds under load, and at the end acknowledged = store = journal."""
