"""Builds the optional compiled walk; everything else about the package is in pyproject.toml.

Without a C compiler the install still succeeds: `mpprof doctor` and a warning say that the
reference walk in plain Python is in use.
"""

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:
    extensions = []
else:
    extensions = cythonize(
        [Extension("mpprof.traces.common._walk", ["mpprof/traces/common/_walk.pyx"])],
        compiler_directives={"language_level": 3},
    )
    for extension in extensions:  # cythonize makes new ones and drops the flag
        extension.optional = True

setup(ext_modules=extensions)
