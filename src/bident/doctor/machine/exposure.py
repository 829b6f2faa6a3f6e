"""Servers that strangers can reach."""

from __future__ import annotations

from collections.abc import Iterator

from bident.doctor.check import Finding, Patient
from bident.doctor.machine.surroundings import MachineCheck
from bident.errors import SettingsError
from bident.settings.security import is_loopback


class Exposure(MachineCheck):
    """Settings under which whoever reaches the machine may use and load models."""

    name = "exposure"
    title = "A server would listen to the network without asking who comes"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        tensor, text = self._here.settings()
        try:
            self._here.strict_settings()
        except SettingsError:
            return  # it would not start: the check of settings says so
        doors = (
            ("http", tensor.allow_http, tensor.http_address, tensor.api_key_file, tensor.http_use_ssl_mutual),
            ("grpc", tensor.allow_grpc, tensor.grpc_address, tensor.api_key_file, tensor.grpc_use_ssl_mutual),
            ("text", True, text.host.host, text.api_key_file, text.use_ssl_mutual),
        )
        for door, opens, address, keys, mutual in doors:
            if opens and not is_loopback(address) and not keys and not mutual:
                yield self._risk(
                    f"{door} door on {address}",
                    "it listens to the network, and asks nobody for a key",
                    "'insecure' is set: whoever reaches the port may use the models, and load their own",
                    "name a file of API keys with BIDENT_API_KEY_FILE (BIDENT_TEXT_API_KEY_FILE for the text server), "
                    "or listen on 127.0.0.1",
                )


class OllamaHost(MachineCheck):
    """The text server heeds Ollama's variables, this one too."""

    name = "ollama-host"
    title = "OLLAMA_HOST, meant for Ollama, opens the text server to the network"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        value = self._here.environ.get("OLLAMA_HOST", "")
        if not value or self._here.environ.get("BIDENT_TEXT_HOST"):
            return
        _, text = self._here.settings()
        if is_loopback(text.host.host) or text.api_key_file or text.use_ssl_mutual:
            return
        yield self._risk(
            f"OLLAMA_HOST={value}",
            f"the text server would listen on {text.host.host}, and refuses to without API keys",
            "OLLAMA_HOST=0.0.0.0 is the usual advice for an Ollama that containers should reach; the text server "
            "takes its address from there too",
            "BIDENT_TEXT_HOST=127.0.0.1 for this machine alone, or BIDENT_TEXT_API_KEY_FILE=KEYS for the network",
        )
