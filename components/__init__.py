"""The steps of the pipeline, one folder a step, and what several steps share, one noun a file."""
