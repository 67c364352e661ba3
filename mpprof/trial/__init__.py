"""The same training under several settings: which of them pays, measured.

`settings` says what a setting is and which there are to try, `rounds` what the trainings of two settings
show, `ladder` which training comes next and which setting is kept: pure functions. `training` starts and ends
the processes, and `trying` puts it together.
"""
