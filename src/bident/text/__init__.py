"""The text engine: models that fit GGUF, for clients of Ollama and OpenAI."""
