"""``remuda doctor``: named checks of a fleet and of this machine. Gathered, then judged, then said."""
