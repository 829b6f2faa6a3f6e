"""Where text models are kept: in the layout of Ollama's library, so that the two can share one."""
