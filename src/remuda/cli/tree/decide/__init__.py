"""What ``remuda up`` decides: no I/O and no clock, so that a table can try all of it."""
