"""The way to a model through LiteLLM, tried from its end: our servers, then the proxy, then all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from urllib.parse import quote

from bident.client import TextClient
from bident.connect.litellm.choices import MASTER_KEY, Choices
from bident.connect.litellm.configuration import TENSOR_PATH
from bident.connect.litellm.proxy import Proxy
from bident.connect.neighbour import Hop
from bident.connect.site import Site, TextModel
from bident.connect.text_way import greeting
from bident.errors import Code, ServeError

_QUESTION = [{"role": "user", "content": "Say hello."}]
_TOKENS = 8
_TEXT = "A cat sleeps."

_Try = tuple[str, Callable[[], str], str]
"""A hop's name, what tries it and tells what was seen, and the cure where that raises ServeError."""


class Way:
    """From ``proxy`` to the models of ``choices`` at ``site``; ``start`` is the command that starts the proxy."""

    def __init__(self, site: Site, choices: Choices, proxy: Proxy, start: str) -> None:
        self._site = site
        self._choices = choices
        self._proxy = proxy
        self._start = start

    def hops(self) -> Iterator[Hop]:
        """Each when it has been tried, up to the first that does not work."""
        for name, tried, cure in (*self._own_text(), *self._proxy_alone(), *self._through()):
            try:
                seen = tried()
            except ServeError as error:
                yield Hop(name, works=False, seen=error.message, cure=cure)
                return
            except (KeyError, TypeError, IndexError) as error:
                yield Hop(name, works=False, seen=f"the answer is not what it should be: {error!r}", cure=cure)
                return
            yield Hop(name, works=True, seen=seen)

    def _own_text(self) -> Iterator[_Try]:
        """The text server, without LiteLLM."""
        if self._site.text is None or not (self._choices.chats or self._choices.embedders):
            return
        text = TextClient(self._site.text.here, credentials=self._site.text.credentials)
        again = "'bident logs' may say why; 'bident run NAME' asks it the same"
        yield "the text server", partial(_version, text), "start it with 'bident up'"
        for model in self._choices.chats[:1]:
            yield f"the text server -> {model.short}", partial(_chatted, text, model), again
        for model in self._choices.embedders[:1]:
            yield f"the text server -> {model.short}", partial(_embedded, text, model), again

    def _proxy_alone(self) -> Iterator[_Try]:
        """LiteLLM itself."""
        key = f"export {MASTER_KEY} with the value that it has where LiteLLM was started"
        again = f"start LiteLLM again with what 'bident connect litellm' prints now: {self._start}"
        yield "LiteLLM", self._lives, f"start it: {self._start}; or say where it is: --set proxy=http://HOST:PORT"
        yield "LiteLLM's key", self._takes_key, key
        yield "LiteLLM's models", self._lists, again

    def _through(self) -> Iterator[_Try]:
        """A question to each kind of model through LiteLLM."""
        for model in self._choices.chats[:1]:
            name = model.short
            yield f"LiteLLM -> {name}", partial(self._chat, name), self._reach("text")
        for model in self._choices.embedders[:1]:
            name = model.short
            yield f"LiteLLM -> {name}", partial(self._embed, name), self._reach("text")
        for tensor in self._choices.tensors[:1]:
            name = tensor.name
            yield f"LiteLLM -> {TENSOR_PATH} -> {name}", partial(self._describe, name), self._reach("tensor")

    def _reach(self, which: str) -> str:
        address = self._site.text if which == "text" else self._site.tensor
        where = address.theirs if address else ""
        return (
            f"LiteLLM must reach {where}; where it runs in a container or on another machine, make its "
            "configuration with --host NAME, and start the servers with a --host that it reaches"
        )

    def _lives(self) -> str:
        self._proxy.lives()
        return f"answers at {self._proxy.url}"

    def _takes_key(self) -> str:
        self._proxy.models()
        if self._proxy.wants_key():
            return f"takes the one in {MASTER_KEY}"
        return f"takes requests without one: {MASTER_KEY} was not set where it was started"

    def _lists(self) -> str:
        listed = self._proxy.models()
        expected = [model.short for model in (*self._choices.chats, *self._choices.embedders)]
        if missing := [name for name in expected if name not in listed]:
            raise ServeError(
                Code.NOT_FOUND, f"it does not have {', '.join(missing)}; it has {', '.join(listed) or 'none'}"
            )
        return ", ".join(expected) or "none are expected"

    def _chat(self, name: str) -> str:
        body = {"model": name, "messages": _QUESTION, "max_tokens": _TOKENS}
        answer = self._proxy.ask("POST", "/v1/chat/completions", body)
        usage = answer["usage"]
        said = answer["choices"][0]["message"]["content"]
        return f"{_first_line(said)!r} ({usage['prompt_tokens']} + {usage['completion_tokens']} tokens)"

    def _embed(self, name: str) -> str:
        answer = self._proxy.ask("POST", "/v1/embeddings", {"model": name, "input": [_TEXT]})
        return f"{len(answer['data'][0]['embedding'])} numbers for a text"

    def _describe(self, name: str) -> str:
        metadata = self._proxy.ask("GET", f"{TENSOR_PATH}/v2/models/{quote(name, safe='')}")
        inputs, outputs = (", ".join(each["name"] for each in metadata[side]) for side in ("inputs", "outputs"))
        return f"{inputs} in, {outputs} out"


def _version(text: TextClient) -> str:
    return f"{text.version()['version']} at {text.url}"


def _chatted(text: TextClient, model: TextModel) -> str:
    return repr(_first_line(greeting(text, model.name)))


def _embedded(text: TextClient, model: TextModel) -> str:
    return f"{len(text.embed(model.name, [_TEXT])[0])} numbers for a text"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:60]
