"""Remuda: a warm-pool fleet of single-use CI runners. Start at ARCHITECTURE.md."""
