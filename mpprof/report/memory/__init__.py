"""Memory as text and JSON: what a run held, and what a training will take."""
