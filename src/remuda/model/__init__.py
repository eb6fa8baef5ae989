"""The nouns: frozen dataclasses and errors. Standard library only; no I/O, no clock, no logging."""
