"""What the agent decides. Pure: what was seen, what was written down and the time come in, data goes out."""
