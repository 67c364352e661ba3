"""`python -m mpprof.cli`: the same as `mpprof`."""

import sys

from mpprof.cli import main

sys.exit(main())
