"""``pb_utils.ModelConfig``: what ``auto_complete_config`` reads and adds to."""

from __future__ import annotations

import json
from typing import Any


class ModelConfig:
    """The model's configuration, as far as it is known."""

    def __init__(self, model_config: str) -> None:
        self._model_config: dict[str, Any] = json.loads(model_config)

    def as_dict(self) -> dict[str, Any]:
        """The configuration, for reading."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set the largest batch. Raises ValueError when the configuration asks for a larger one."""
        configured = self._model_config.get("max_batch_size", 0)
        if configured > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {configured}, but in auto-complete-config function "
                f"for model '{self._name}' specified max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Have requests batched, where no scheduler is set. Raises ValueError where another one is."""
        for scheduler in ("sequence_batching", "ensemble_scheduling"):
            if scheduler in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{scheduler}', but auto-complete-config function "
                    f"for model '{self._name}' tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input: dict[str, Any]) -> None:
        """Declare an input. Raises ValueError when it is incomplete or contradicts the configuration."""
        self._add("input", input, "'name', 'data_type', 'dims' and 'optional'", {"optional"})

    def add_output(self, output: dict[str, Any]) -> None:
        """Declare an output. Raises ValueError when it is incomplete or contradicts the configuration."""
        self._add("output", output, "'name', 'data_type' and 'dims'", set())

    def set_model_transaction_policy(self, transaction_policy_dict: dict[str, Any]) -> None:
        """Say whether the model is decoupled. Raises ValueError when the configuration says otherwise."""
        if any(key != "decoupled" for key in transaction_policy_dict):
            raise ValueError(
                f"model transaction property in auto-complete-config function for model '{self._name}' "
                "contains property other than 'decoupled'."
            )
        policy = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" not in transaction_policy_dict:
            return
        wanted = transaction_policy_dict["decoupled"]
        if policy.get("decoupled", wanted) != wanted:
            raise ValueError(
                f"trying to change decoupled property in auto-complete-config for model '{self._name}', "
                f"which is already set to '{policy['decoupled']}'."
            )
        policy["decoupled"] = wanted

    @property
    def _name(self) -> str:
        return str(self._model_config.get("name", ""))

    def _add(self, side: str, tensor: dict[str, Any], properties: str, more: set[str]) -> None:
        where = f"in auto-complete-config function for model '{self._name}'"
        needed = ("name", "data_type", "dims")
        if set(tensor) - set(needed) - more:
            raise ValueError(f"{side} '{tensor.get('name', '')}' {where} contains property other than {properties}.")
        for key in needed:
            if key not in tensor:
                subject = side if key == "name" else f"{side} '{tensor['name']}'"
                raise ValueError(f"{subject} {where} is missing '{key}' property.")
        declared = self._model_config.setdefault(side, [])
        for known in declared:
            if known["name"] == tensor["name"]:
                self._agree(side, known, tensor)
                known.update(tensor)
                return
        declared.append(tensor)

    def _agree(self, side: str, known: dict[str, Any], tensor: dict[str, Any]) -> None:
        datatype = known.get("data_type", "TYPE_INVALID")
        if datatype not in ("TYPE_INVALID", tensor["data_type"]):
            raise ValueError(
                f"unable to load model '{self._name}', configuration expects datatype {datatype} for {side} "
                f"'{tensor['name']}', model provides {tensor['data_type']}"
            )
        for key in ("dims", "optional"):
            # Empty dims are not declared yet; whether an input is optional matters only where both say so.
            stated = known.get(key) or None if key == "dims" else known.get(key)
            if stated is not None and key in tensor and stated != tensor[key]:
                raise ValueError(
                    f"model '{self._name}', tensor '{tensor['name']}': the model expects {key} {tensor[key]} "
                    f"but the model configuration specifies {key} {stated}"
                )
