"""What the hub runs on: the channels of boards, their frames, cohorts of viewers, and replays."""
