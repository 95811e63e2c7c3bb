"""Several server processes: a parent that starts, replaces and ends them, and what each of them runs."""
