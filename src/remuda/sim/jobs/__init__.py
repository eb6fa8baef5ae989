"""The store of jobs in memory, for the simulator: the twin of ``remuda.adapters.postgres``. One suite runs on both."""
