"""The parts of the hub: the channels of boards, their frames, cohorts of viewers, and delays."""
