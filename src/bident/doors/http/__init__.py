"""The HTTP door: KServe v2 over HTTP/1.1, as Triton speaks it."""
