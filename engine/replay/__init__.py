"""A recorded run under other settings: its arrivals, the real scheduler, a fitted step time."""
