"""The seams: one Protocol per outside thing, and the errors that it may answer with. No implementation."""
