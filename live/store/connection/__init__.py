"""The connections to the store, its scripts, and the detection of lost data."""
