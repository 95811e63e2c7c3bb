"""The work of the commands for operators, one command in each module."""
