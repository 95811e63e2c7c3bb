"""What the store holds besides boards: definitions, producers, leases, viewer counts and stored responses."""
