"""What the store holds beside the boards: definitions, producers, leases, presence."""
