"""Several server processes: a parent that starts, replaces and ends them, and the code that each of them runs."""
