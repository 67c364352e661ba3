"""A package that trains."""
