"""From what is asked of a text model to what llama.cpp is sent, and from what it sends to the answer."""
