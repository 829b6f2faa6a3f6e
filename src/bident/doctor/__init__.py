"""Known pitfalls: how each is recognised, why it happens, and its cure. One small check for each."""
