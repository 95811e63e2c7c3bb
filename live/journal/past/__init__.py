"""Questions about the past of boards, answered in other processes."""
