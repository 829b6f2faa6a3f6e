"""Serves ONNX models on ONNX Runtime: ``backend: "onnxruntime"``."""

from __future__ import annotations

from bident.backends.onnx.backend import OnnxBackend

__all__ = ["OnnxBackend"]
