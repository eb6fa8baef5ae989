"""What the checks of ``remuda doctor`` find in what was read, and what may be mended. Pure."""
