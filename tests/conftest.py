"""What holds for every test."""

import contextlib

with contextlib.suppress(ImportError):  # the environments of other frameworks have no Hypothesis
    from hypothesis import settings

    # How long an example takes says how busy the machine is, and nothing of the code.
    settings.register_profile("mpprof", deadline=None)
    settings.load_profile("mpprof")
