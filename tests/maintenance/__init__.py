"""Commands of operators: backups, recoveries, checks and erasures do what they promise."""
