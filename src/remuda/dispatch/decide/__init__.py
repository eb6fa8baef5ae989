"""What dispatch decides. Pure: what was seen and the time come in, data goes out."""
