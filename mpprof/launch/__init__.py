"""An unchanged script under the callback: how its interpreter is started, and what is put into it.

The script is run by Python itself, as `python SCRIPT` would: `command` only has the interpreter import
`site/sitecustomize.py` as it starts, which calls `script.begin`. Nothing of a framework is imported before the
script imports it; `import_hook` then calls `fit` and `settings`, which put the callback and what was asked for
into Keras. Everything here may also be used in a process that has begun already.
"""
