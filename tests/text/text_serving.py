"""Real text servers for the tests: ``bident serve text`` in a process of its own, on a free port."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx

TOOLED = """\
{{ if .Tools }}<|im_start|>system
Tools: {{ .Tools }}<|im_end|>
{{ end }}{{ range .Messages }}<|im_start|>{{ .Role }}
{{ .Content }}{{ range .ToolCalls }}{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}{{ end }}\
<|im_end|>
{{ end }}<|im_start|>assistant
"""
"""A template that has a place for tools."""
_DEADLINE_SECONDS = 30.0
_STARTED = re.compile(r"Started text at [0-9.:]+:(\d+)")


class TextServing:
    """A server of the models in ``files``; it pulls and creates in a folder of its own."""

    def __init__(self, folder: Path, *flags: str, files: tuple[Path, ...] = (), upstream: str = "none") -> None:
        self.log = folder / "text.log"
        command = [sys.executable, "-m", "bident", "serve", "text", "--port=0", f"--models={folder / 'store'}"]
        command += [f"--library={path}" for path in files] + [f"--upstream={upstream}", *flags]
        # Nothing of this machine's own: no library of an Ollama, no settings.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OLLAMA_", "BIDENT_"))}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, stderr=log, stdout=log, env={**kept, "OLLAMA_MODELS": str(folder / "nobodys")}
            )
        self.port = self._wait_for_port()
        self.url = f"{'https' if '--use-ssl=true' in flags else 'http'}://127.0.0.1:{self.port}"

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60.0, trust_env=False)

    def said(self) -> str:
        """What it has logged."""
        return self.log.read_text(encoding="utf-8")

    def stop(self) -> int:
        """Ask it to stop; its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(_DEADLINE_SECONDS)
        finally:
            self.process.kill()

    def _wait_for_port(self) -> int:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not (found := _STARTED.search(self.said())):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)
        return int(found[1])
