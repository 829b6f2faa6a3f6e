"""TextSettings: every setting of the text server, and the table they are read from.

Where Ollama has an environment variable for the same thing (its FAQ, "How do I configure Ollama
server?"), that is heeded too.
"""

# ruff: noqa: RUF009 - setting() returns a dataclass field, not a default value

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bident.settings.addresses import HOST, ORIGINS, UPSTREAMS, Address, Upstream
from bident.settings.security import Security
from bident.settings.server import Logging
from bident.settings.setting import Setting, rows, setting
from bident.settings.values import BOOLEAN, COUNT, FILE, FOLDERS, PORT, TEXT, TRACE_OPTIONS, Named, choice, whole

DEFAULT_PORT = 11434
"""Ollama's."""
_MEGABYTE = 1 << 20


@dataclass(frozen=True)
class TextDoor:
    """Where the text server listens, and to whom."""

    title: ClassVar[str] = "Text server"

    host: Address = setting(
        HOST,
        Address("127.0.0.1"),
        "Address it binds to; host:port and a URL are understood too.",
        foreign="OLLAMA_HOST",
    )
    port: int = setting(
        PORT, None, f"Port it listens on; 0 picks a free one. Without it that of --host, or {DEFAULT_PORT}."
    )
    origins: tuple[str, ...] = setting(
        ORIGINS,
        (),
        "Origin of web pages that may use it, besides those on this machine; with * in it for any text; repeat it or "
        "put commas between several.",
        foreign="OLLAMA_ORIGINS",
    )
    max_body_bytes: int = setting(
        whole(1), 64 * _MEGABYTE, "Largest body of a request, images and all; larger ones are answered 413."
    )
    exit_timeout_secs: int = setting(
        COUNT, 30, "Seconds that answers may take to finish once the server has been told to stop."
    )
    config_file: Path | None = setting(
        FILE, None, "TOML file whose [text] table sets any of these; ./bident.toml is read without being named."
    )


@dataclass(frozen=True)
class TextTls:
    """The text server's TLS."""

    title: ClassVar[str] = "Encryption of the text server"

    use_ssl: bool = setting(BOOLEAN, False, "Encrypt with TLS.")
    use_ssl_mutual: bool = setting(BOOLEAN, False, "Encrypt with TLS and ask clients for a certificate too.")
    server_cert: str = setting(TEXT, "", "PEM file of the server's certificate, its chain after it.")
    server_key: str = setting(TEXT, "", "PEM file of the server's key.")
    root_cert: str = setting(TEXT, "", "PEM file of the root certificate for clients.")

    @property
    def is_encrypted(self) -> bool:
        """Whether it speaks TLS."""
        return self.use_ssl or self.use_ssl_mutual


@dataclass(frozen=True)
class TextModels:
    """Which models there are, and who answers for them."""

    title: ClassVar[str] = "Text models"

    models: Path | None = setting(
        FILE, None, "Folder that models are pulled into and created in; without it, .bident/models/text at home."
    )
    library: tuple[Path, ...] = setting(
        FOLDERS,
        (),
        "Further library of Ollama's, .gguf file or folder of them, served in place and never written to; repeat it "
        "for several. The library of an Ollama on this machine (OLLAMA_MODELS, ~/.ollama/models) is always among them.",
    )
    noprune: bool = setting(BOOLEAN, False, "Keep blobs that no model uses any more.", foreign="OLLAMA_NOPRUNE")
    upstream: tuple[Upstream, ...] = setting(
        UPSTREAMS,
        (Upstream("auto"),),
        "Who answers: none (the engine inside), ollama:<url> or openai:<url>; auto is a real Ollama where one listens "
        "on its port, and the engine inside otherwise. With <model>= in front it is for that model alone; repeat it.",
    )
    upstream_api_key: str = setting(
        TEXT, "", "API key that OpenAI-compatible upstreams are sent; better set by its environment variable."
    )


@dataclass(frozen=True)
class TextResidency:
    """How models are loaded, and how long they stay."""

    title: ClassVar[str] = "Loaded text models"

    keep_alive: str = setting(
        TEXT,
        "5m",
        "How long a model stays loaded after its last answer: seconds, or as in 1h30m; negative is for ever.",
        foreign="OLLAMA_KEEP_ALIVE",
    )
    context_length: int = setting(
        COUNT,
        0,
        "Tokens of prompt and answer together where a request does not say num_ctx; 0 is 4096.",
        foreign="OLLAMA_CONTEXT_LENGTH",
    )
    num_parallel: int = setting(
        COUNT,
        0,
        "Requests that one model answers at the same time; 0 is 4, and 1 for embeddings.",
        foreign="OLLAMA_NUM_PARALLEL",
    )
    max_loaded_models: int = setting(
        COUNT, 0, "Most models loaded at a time; 0 is as many as memory holds.", foreign="OLLAMA_MAX_LOADED_MODELS"
    )
    max_queue: int = setting(
        whole(1),
        512,
        "Most requests that wait for one model; further ones are answered 503.",
        foreign="OLLAMA_MAX_QUEUE",
    )
    load_timeout: str = setting(
        TEXT, "5m", "Longest that a model may take to load; written as --keep-alive.", foreign="OLLAMA_LOAD_TIMEOUT"
    )
    threads: int = setting(
        COUNT, 0, "Threads that models compute with, all together; 0 is one less than this process may use cores."
    )
    kv_cache_type: str = setting(
        choice("f16", "q8_0", "q4_0"), "f16", "Type that contexts are kept in.", foreign="OLLAMA_KV_CACHE_TYPE"
    )
    flash_attention: bool | None = setting(
        BOOLEAN, None, "Use flash attention; without it, where the model gains.", foreign="OLLAMA_FLASH_ATTENTION"
    )


@dataclass(frozen=True)
class TextTraces:
    """Which answers leave a span, and what it says."""

    title: ClassVar[str] = "Text traces"

    trace_config: tuple[Named, ...] = setting(
        TRACE_OPTIONS,
        (),
        "As the tensor server's, with mode=opentelemetry alone: that by itself is a span for each answer, and rate=<n> "
        "for one in so many.",
    )
    trace_text: bool = setting(BOOLEAN, False, "Put prompts and answers into spans; without it no text leaves.")
    trace_usage: str = setting(
        choice("auto", "always", "never"),
        "auto",
        "Whether spans count tokens as used; auto: unless the request is part of a larger trace or comes from LiteLLM, "
        "which count them.",
    )


TEXT_GROUPS = (TextDoor, Logging, Security, TextTls, TextModels, TextResidency, TextTraces)

TEXT_TABLE: tuple[Setting, ...] = tuple(row for group in TEXT_GROUPS for row in rows(group, "BIDENT_TEXT_"))
"""Every setting once, in the order of ``--help`` and of the reference page."""


@dataclass(frozen=True)
class TextSettings(TextDoor, Logging, Security, TextTls, TextModels, TextResidency, TextTraces):
    """The text server's settings, all resolved: ``port`` is a number. Attributes are the flags with underscores."""
