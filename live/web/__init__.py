"""HTTP: the composition root and its routes."""
