"""Plans in and out: files, traces, checkpoints, render plans and C; and how two of them compare."""
