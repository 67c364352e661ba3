"""Valid files of every format from grammars, and changes of a file that must not change what is said of it."""
