"""The measures: CPU time per unit of work, as ratios against floors taken in the same run on the same machine."""
