"""The worker's code. ``arrays``, ``frames`` and ``memory`` are used by the server's side of the channel too."""
