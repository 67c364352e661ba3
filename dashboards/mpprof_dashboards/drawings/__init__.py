"""Drawings of our own: pure functions from a report's facts to SVG, for the page and for documents alike."""
