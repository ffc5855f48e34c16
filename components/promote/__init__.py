"""The promote step: the gate, and the model store behind it."""
