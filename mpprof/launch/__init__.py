"""An unchanged script under the callback: how its interpreter is started, and what is put into it.

Python itself runs the script. `command` has the interpreter import `site/sitecustomize.py` as it starts,
which calls `beginning.begin`. No framework is imported before the script imports it: then `import_hook` lets
`fit` put the callback into Keras, and `settings` the requested settings.
"""
