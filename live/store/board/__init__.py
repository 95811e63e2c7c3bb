"""What the store holds of one board, and the scripts that read and change it."""
