"""What a host needs, decided from what was seen of it. Pure: facts come in, steps go out."""
