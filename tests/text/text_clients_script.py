"""Run by the Python of ``.venvs/text_clients``: asks a text server with its users' own clients, and prints the answers.

``python text_clients_script.py URL``: one JSON object on the last line. Failures of a call are answers too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import anthropic
import ollama
import openai
from langchain_core.messages import HumanMessage
from langchain_ollama import ChatOllama, OllamaEmbeddings
from llama_index.core.llms import ChatMessage
from llama_index.llms.ollama import Ollama

MODEL = "smollm2"
MESSAGES: list[Any] = [{"role": "user", "content": "Say hi"}]
GREEDY = {"num_predict": 4, "seed": 1, "temperature": 0}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: dict[str, Any] = {"name": "weather", "description": "The weather of a city", "parameters": SCHEMA}


def with_ollama(url: str) -> dict[str, Callable[[], Any]]:
    client = ollama.Client(url)
    stream = {"model": MODEL, "options": GREEDY, "stream": True}
    return {
        "list": lambda: [each.model for each in client.list().models],
        "show": lambda: client.show(MODEL).capabilities,
        "chat": lambda: client.chat(MODEL, MESSAGES, options=GREEDY).model_dump(),
        "chat stream": lambda: [each.message.content for each in client.chat(messages=MESSAGES, **stream)],
        "generate": lambda: client.generate(MODEL, "Hello", options=GREEDY).model_dump(),
        "generate stream": lambda: [each.response for each in client.generate(prompt="Hello", **stream)],
        "format": lambda: client.chat(MODEL, MESSAGES, format=SCHEMA, options={"num_predict": 40}).message.content,
        "logprobs": lambda: len(client.chat(MODEL, MESSAGES, options=GREEDY, logprobs=True).logprobs),
        "embed": lambda: client.embed("minilm", ["a", "b"]).model_dump(),
        "load": lambda: client.generate(MODEL, keep_alive=60).done_reason,
        "ps": lambda: [each.context_length for each in client.ps().models if each.model.startswith(MODEL)],
        "unknown": lambda: client.chat("nobody", MESSAGES),
        "create": lambda: client.create("pirate", from_=MODEL, system="You are a pirate.").status,
        "created": lambda: client.show("pirate").modelfile,
        "copy": lambda: client.copy("pirate", "mate").status,
        "delete": lambda: [client.delete("pirate").status, client.delete("mate").status],
        "unload": lambda: client.generate(MODEL, keep_alive=0).done_reason,
    }


def with_openai(url: str) -> dict[str, Callable[[], Any]]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)
    chat = client.chat.completions
    schema = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
    ask: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "max_completion_tokens": 4, "temperature": 0}
    respond: dict[str, Any] = {"model": MODEL, "input": "Say hi", "temperature": 0}

    def required() -> Any:
        asked = {**ask, "model": "tooled", "max_completion_tokens": 60}
        tools: list[Any] = [{"type": "function", "function": TOOL}]
        return chat.create(**asked, tools=tools, tool_choice="required").choices[0].model_dump()

    def final_response() -> Any:
        with client.responses.stream(**respond, max_output_tokens=200) as stream:
            for _ in stream:
                pass
            return stream.get_final_response().output_text

    return {
        "models": lambda: [each.id for each in client.models.list()],
        "model": lambda: client.models.retrieve(MODEL).id,
        "chat": lambda: chat.create(**ask).model_dump(),
        "n": lambda: len(chat.create(**{**ask, "n": 2}).choices),
        "stream": lambda: [
            each.model_dump(exclude_none=True)
            for each in chat.create(**ask, stream=True, stream_options={"include_usage": True})
        ],
        "logprobs": lambda: len(chat.create(**ask, logprobs=True, top_logprobs=2).choices[0].logprobs.content),
        "schema": lambda: (
            chat.create(**{**ask, "max_completion_tokens": 40}, response_format=schema).choices[0].message.content
        ),
        "required": required,
        "completion": lambda: client.completions.create(model=MODEL, prompt="Hello", max_tokens=4).choices[0].text,
        "completion stream": lambda: [
            each.choices[0].text
            for each in client.completions.create(model=MODEL, prompt="Hello", max_tokens=4, stream=True)
        ],
        "embeddings": lambda: [
            each.embedding for each in client.embeddings.create(model="minilm", input=["a", "b"]).data
        ],
        "response": lambda: client.responses.create(**respond, max_output_tokens=16).output_text,
        "response stream": final_response,
        "unknown": lambda: chat.create(model="nobody", messages=MESSAGES),
        "wrong": lambda: chat.create(**{**ask, "temperature": 9}),
    }


def with_anthropic(url: str) -> dict[str, Callable[[], Any]]:
    client = anthropic.Anthropic(base_url=url, api_key="any", max_retries=0)
    ask: dict[str, Any] = {"model": MODEL, "max_tokens": 4, "messages": MESSAGES}
    tool = {"name": "weather", "description": "The weather of a city", "input_schema": SCHEMA}

    def final_message() -> Any:
        with client.messages.stream(**ask) as stream:
            return stream.get_final_message().model_dump()

    return {
        "message": lambda: client.messages.create(**ask, system="Be nice.").model_dump(),
        "stream": final_message,
        "count": lambda: client.messages.count_tokens(model=MODEL, messages=MESSAGES).input_tokens,
        "tool": lambda: client.messages.create(
            **{**ask, "model": "tooled", "max_tokens": 60}, tools=[tool], tool_choice={"type": "any"}
        ).model_dump(),
        "unknown": lambda: client.messages.create(**{**ask, "model": "nobody"}),
    }


def with_frameworks(url: str) -> dict[str, Callable[[], Any]]:
    chain = ChatOllama(model=MODEL, base_url=url, num_predict=4, temperature=0)
    index = Ollama(model=MODEL, base_url=url, request_timeout=60, additional_kwargs={"num_predict": 4})
    return {
        "langchain": lambda: chain.invoke([HumanMessage("Say hi")]).content,
        "langchain stream": lambda: "".join(str(each.content) for each in chain.stream("Say hi")),
        "langchain schema": lambda: (
            ChatOllama(model=MODEL, base_url=url, num_predict=40)
            .with_structured_output(SCHEMA | {"title": "place"}, method="json_schema")
            .invoke("Say hi")
        ),
        "langchain embeddings": lambda: len(OllamaEmbeddings(model="minilm", base_url=url).embed_query("a")),
        "llama-index": lambda: index.chat([ChatMessage(role="user", content="Say hi")]).message.content,
        "llama-index stream": lambda: "".join(each.delta or "" for each in index.stream_complete("Say hi")),
    }


def answer(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:
        return {"failed": type(error).__name__, "status": getattr(error, "status_code", None), "said": str(error)}


def main() -> None:
    url = sys.argv[1]
    clients = {
        "ollama": with_ollama(url),
        "openai": with_openai(url),
        "anthropic": with_anthropic(url),
        "frameworks": with_frameworks(url),
    }
    said = {client: {what: answer(ask) for what, ask in calls.items()} for client, calls in clients.items()}
    sys.stdout.write(json.dumps(said, default=str))


if __name__ == "__main__":
    main()
