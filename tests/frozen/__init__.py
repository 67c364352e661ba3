"""What must not change while the inside is rebuilt: every document, text, verdict and option, as it is today.

`python -m tests.frozen` says what differs from what is kept here, one line for each key; `python -m tests.frozen --write`
keeps what is there now. A change of these files is a commit of its own that lists the keys.
"""
