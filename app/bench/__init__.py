"""`stepscope bench`: this engine on this machine, and beside others on the same weights."""
