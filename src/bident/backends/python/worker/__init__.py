"""The worker process: everything in this folder runs outside the server, under the model's own Python.

``python <this folder>`` starts a worker (``__main__``). The folder is on the worker's ``sys.path``, and
holds only ``bident_worker`` (the code) and ``triton_python_backend_utils`` (what models import).
Nothing here imports anything but the standard library, numpy, and each other.
"""
