"""The evaluate step: exact metrics of a model, and of the champion on the same rows."""
