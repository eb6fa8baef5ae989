"""The incidents that taught dispatch its rules, played by its real replicas and operator, and a forge in memory."""
