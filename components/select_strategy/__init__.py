"""Step 3: which strategy trains this model fastest here, decided rung by rung from measurements."""
