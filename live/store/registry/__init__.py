"""Keep what the store holds besides boards: definitions, producers, their credit, leases, viewers, stored responses."""
