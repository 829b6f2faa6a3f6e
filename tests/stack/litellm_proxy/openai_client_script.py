"""Asks a LiteLLM proxy (its address and key are given) as programs do: with OpenAI's own client."""

import json
import sys

from openai import OpenAI

MESSAGES = [{"role": "user", "content": "Which city is the capital of France?"}]


def main() -> None:
    client = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key=sys.argv[2], max_retries=0)
    asked = {"model": "smollm2", "messages": MESSAGES, "temperature": 0, "max_tokens": 12}
    chat = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    vectors = client.embeddings.create(model="minilm", input=["a cat", "a kitten"]).data
    said = {
        "chat": chat.choices[0].message.content,
        "stream": "".join(each.choices[0].delta.content or "" for each in chunks if each.choices),
        "tokens": [chat.usage.completion_tokens, chunks[-1].usage.completion_tokens],
        "vectors": [len(each.embedding) for each in vectors],
        "models": [model.id for model in client.models.list()],
    }
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
