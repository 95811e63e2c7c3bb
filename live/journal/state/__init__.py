"""What entries add up to: the state of a board after any of them, and its ranking."""
