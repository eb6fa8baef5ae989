"""The outside world, one module per outside thing. Each fills one port; none holds policy."""
