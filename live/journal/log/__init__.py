"""The entries of boards in SQL: timelines, how entries are moved there, and how they are read."""
