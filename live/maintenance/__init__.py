"""Hold the commands of operators: backup, restore, rebuild, reconcile, void, erase, export, and accepting a loss."""
