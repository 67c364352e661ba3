"""Memory as text and JSON: what a run held."""
