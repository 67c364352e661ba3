"""What mixed precision would bring on a card that is not here: XLA compiles the train step for it.

XLA compiles for a GPU from a description of it, on a machine without one. A child process builds the model,
lowers its train step and compiles it per card and policy (`child`); this side starts it and keeps its results
(`compiling`), reads the programs (`traces.common.hlo_program`), decides what holds whichever way the card
will choose (`deciding`), bounds its time (`least_time`), puts it together (`judging`), and searches the
largest batch (`batches`). `forecasting` is the public function, `rendering` words the result. `memory` needs
no compiler.
"""
