"""LangChain: a program that asks the text engine's models."""

from __future__ import annotations

import json
from collections.abc import Iterator

from bident.connect.neighbour import File, Hop, Neighbour, Wanted, until_failure
from bident.connect.site import Site
from bident.connect.text_way import able, some_model, text_address, text_hops


class LangChain(Neighbour):
    """Asks the text server through ``langchain-ollama``."""

    name = "langchain"
    summary = "a Python program with langchain-ollama that asks the text models, to begin with"

    def files(self, site: Site, wanted: Wanted) -> list[File]:
        some_model(site, wanted)
        url = text_address(site).theirs
        answerers, embedders = (able(site, wanted, what) for what in ("completion", "embedding"))
        names = [*(["ChatOllama"] if answerers else []), *(["OllamaEmbeddings"] if embedders else [])]
        lines = [f"from langchain_ollama import {', '.join(names)}", "", f"URL = {json.dumps(url)}"]
        for model in answerers[:1]:
            lines += [
                "",
                f"chat = ChatOllama(model={json.dumps(model.name)}, base_url=URL, temperature=0, num_predict=60)",
                'for piece in chat.stream("Which city is the capital of France?"):',
                '    print(piece.content, end="", flush=True)',
                "print()",
            ]
        for model in embedders[:1]:
            lines += [
                "",
                f"embeddings = OllamaEmbeddings(model={json.dumps(model.name)}, base_url=URL)",
                'cat, kitten = embeddings.embed_documents(["A cat sleeps.", "A kitten naps."])',
                'print(f"nearness {sum(a * b for a, b in zip(cat, kitten)):.2f}")',
            ]
        return [File("ask_bident.py", "\n".join(lines) + "\n", "a program for an environment with langchain-ollama")]

    def steps(self, site: Site, wanted: Wanted) -> list[str]:
        return [
            "pip install langchain-ollama",
            "bident connect langchain --write . && python ask_bident.py",
            "OpenAI's classes work too: ChatOpenAI(base_url=URL + '/v1', api_key='none', model=...).",
        ]

    def check(self, site: Site, wanted: Wanted) -> Iterator[Hop]:
        return until_failure(text_hops(site, wanted))
