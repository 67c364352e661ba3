"""What a training will take of a card's memory, from a model or its records, before it runs.

`kept_for_backward` says what a step keeps for its backward pass, `backward` which of it is there at once;
`training` puts it together with parameters, gradients and slots for each dtype policy, `forecasting` finds
the model, `rendering` words the result.
"""
