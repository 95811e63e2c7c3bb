"""The journal: everything that was counted, in SQL, from which boards can be rebuilt and the past can be read."""
