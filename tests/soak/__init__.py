"""A long run of a real engine under a load that nobody would send: `make soak`."""
