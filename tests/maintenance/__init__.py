"""Commands of operators: backups, rebuilds, comparisons and erasures do what they promise."""
