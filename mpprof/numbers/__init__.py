"""Where 16 bits break, by layer: one forward and backward pass of a batch, looked at tensor by tensor.

`look` runs it and puts the result together. Every layer's outputs are taken as they pass (`taps`) within the
step of each backend (`tensorflow`, `jax`, `torch`), counted where they lie (`counting`) and judged here
(`tallies`, `band`, `causes`, `advice`). What the look could change is put back (`guard`).
"""
