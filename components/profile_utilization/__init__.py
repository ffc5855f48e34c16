"""Step 2: how fast this model trains on this data here, and what it waits for, measured by short real jobs."""
