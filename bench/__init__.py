"""Benchmarks: CPU time per unit of work, as ratios to baselines measured in the same run on the same machine."""
