"""Old entries become checkpoints, periods go to the archive, and damage is found."""
