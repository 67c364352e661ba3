"""The runs of a directory, as tables."""
