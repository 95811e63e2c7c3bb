"""The soak: after random faults under load, the acknowledged events, the store and the journal must agree."""
