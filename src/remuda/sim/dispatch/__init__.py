"""Dispatch in a world: its real replicas on failing lines, the guests that they serve, and the lines to them."""
