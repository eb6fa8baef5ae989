"""The composition root: the only place that joins adapters to loops. One module per command."""
