"""``remuda demo``: a fleet of its own, a burst of jobs, four faults in the middle of it, and an account of it all."""
