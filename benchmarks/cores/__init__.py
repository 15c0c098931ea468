"""Ways to use several cores, measured: nodes, workers behind one port, subinterpreters, free threads (decision 11)."""
