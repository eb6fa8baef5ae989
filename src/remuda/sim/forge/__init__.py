"""A forge in memory: its jobs, its runners and its messages, as the world knows them."""
