"""What the demo plans and what it makes of what it saw. Pure: nothing is read or written here."""
