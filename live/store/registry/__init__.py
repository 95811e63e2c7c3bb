"""The data in the store besides boards: definitions, producers, their credit, leases, viewers."""
