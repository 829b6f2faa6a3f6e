"""What every test of workers may ask for."""

from worker_driving import script, start_worker, write_model

__all__ = ["script", "start_worker", "write_model"]
