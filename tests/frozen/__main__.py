"""`python -m tests.frozen [--write] [GROUP …]`: what differs from what is kept, or keep what is there now."""

from __future__ import annotations

import argparse
import sys

from tests.frozen.keeping import differences, keep, kept
from tests.frozen.outputs import GROUPS

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep what is there now")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)} (default: all)")
    given = parser.parse_args()
    changed = 0
    for group in given.groups or GROUPS:
        now = dict(GROUPS[group]())
        if given.write:
            keep(group, now)
            print(f"{group}: {len(now)} outputs kept")
            continue
        for line in differences(kept(group), now, group):
            print(line)
            changed += 1
    sys.exit(changed > 0)
