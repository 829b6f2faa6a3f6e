"""A thin client of the public v2 API: what the command line knows of a server, it knows through this."""

from bident.client.credentials import Credentials
from bident.client.http import Client, Reply, model_path

__all__ = ["Client", "Credentials", "Reply", "model_path"]
