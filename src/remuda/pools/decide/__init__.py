"""What the operator decides. Pure: what was seen and the time come in, data goes out."""
