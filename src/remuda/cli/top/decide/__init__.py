"""What ``remuda top`` shows: no I/O, no clock and no terminal, so that a table can try all of it."""
