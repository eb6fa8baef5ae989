"""The simulator: the real code on virtual time, with seeded delays and faults at every port."""
