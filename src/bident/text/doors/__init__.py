"""The text server's doors: Ollama's ``/api``, OpenAI's and Anthropic's ``/v1``, one port."""
