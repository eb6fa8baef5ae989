"""Stories of Macs, and of the real host operator that looks after them."""
