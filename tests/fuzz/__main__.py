"""Fuzz one reader by hand, or make an input again:

python -m tests.fuzz xspace --count 20000
python -m tests.fuzz nsys --first 4711 --count 1 --keep /tmp/4711.sqlite
python -m tests.fuzz grammar-xplane --first 4711 --count 1 --keep /tmp/folder
python -m tests.fuzz bounds --mib 10 --only gzip    (CPU seconds and peak memory of the heavy files)
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.fuzz import bounds, harness, worker
from tests.fuzz.grammar import grammars
from tests.fuzz.grammar import worker as grammar_worker
from tests.fuzz.targets import BY_NAME

parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
parser.add_argument("target", choices=("bounds", *BY_NAME, *(f"grammar-{name}" for name in grammars.BY_NAME)))
parser.add_argument("--first", type=int, default=0)
parser.add_argument("--count", type=int, default=5_000)
parser.add_argument(
    "--keep", type=Path, help="write input FIRST here (a grammar's files into this folder) and read nothing"
)
parser.add_argument("--mib", type=float, default=10, help="bounds: size of each file")
parser.add_argument("--only", default="", help="bounds: cases whose name holds this")
args = parser.parse_args()
if args.target == "bounds":
    bounds.measure(args.mib, args.only)
elif args.target.startswith("grammar-"):
    name = args.target.removeprefix("grammar-")
    if args.keep:
        grammar_worker.put(args.keep, grammars.pair(grammars.BY_NAME[name], args.first)[0])
    else:
        print(harness.fuzz(name, args.count, first=args.first, every=1))
elif args.keep:
    args.keep.write_bytes(worker.made(BY_NAME[args.target], args.first))
else:
    print(harness.fuzz(args.target, args.count, first=args.first))
