"""Builds the optional compiled walk; everything else about the package is in pyproject.toml.

Without a C compiler the install still succeeds: `mpprof doctor` and a warning say that the
reference walk in plain Python is in use. MPPROF_PLAIN=1 leaves the compiled walk out: the wheel is then
`py3-none-any`, for the systems that have no wheel of their own.
"""

import os

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None

extensions = []
if cythonize is not None and os.environ.get("MPPROF_PLAIN") != "1":
    extensions = cythonize(
        [
            Extension(
                "mpprof.traces.common._walk", ["mpprof/traces/common/_walk.pyx"], extra_compile_args=["-g0"]
            )
        ],
        compiler_directives={"language_level": 3},
    )
    for extension in extensions:  # cythonize makes new ones and drops the flag
        extension.optional = True

setup(ext_modules=extensions)
