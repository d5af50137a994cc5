"""`stepscope replay`: a recorded run under other settings."""
