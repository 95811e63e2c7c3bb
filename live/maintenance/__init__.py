"""Hold the commands of operators, one in each module."""
