"""Thin clients of the servers' public APIs: what the command line knows of a server, it knows through these."""

from bident.client.connection import Reply
from bident.client.credentials import Credentials
from bident.client.http import Client, model_path
from bident.client.text import TextClient

__all__ = ["Client", "Credentials", "Reply", "TextClient", "model_path"]
