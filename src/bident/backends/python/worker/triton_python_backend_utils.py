"""What a model imports: ``import triton_python_backend_utils as pb_utils``."""

from bident_worker.api import *  # type: ignore[import-not-found]  # noqa: F403
