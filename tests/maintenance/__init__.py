"""Commands of operators: backups, rebuilds, comparisons and erasures hold what they promise."""
