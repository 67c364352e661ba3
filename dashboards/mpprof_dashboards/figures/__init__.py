"""Pure functions from documents and tables to figures.

None of them draws what was not measured: where there is nothing to draw they return None, and the page
says why. Colours of text and lines come from the page's style sheet, so a figure suits dark and light.
"""
