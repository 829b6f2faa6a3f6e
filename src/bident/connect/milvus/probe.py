"""Keeps vectors in a Milvus for a moment and looks for each of them: run by a Python that has its client.

Reads ``{"uri", "token", "vectors"}`` from standard input; writes ``{"version", "found"}``, where ``found`` is the place
of the vector that was nearest to each; or ``{"failed"}``, or ``{"missing"}`` where that Python has no client. It stands
alone: that Python need not have Bident.
"""

import json
import sys
import uuid
from typing import Any


def main() -> None:
    """Answer one request."""
    asked = json.load(sys.stdin)
    try:
        import pymilvus
    except ImportError as error:
        answer: dict[str, Any] = {"missing": str(error)}
    else:
        try:
            answer = {"version": pymilvus.__version__, "found": _there_and_back(pymilvus, asked)}
        except Exception as error:  # noqa: BLE001 - whatever the client raises is what is to be told
            answer = {"failed": " ".join(f"{type(error).__name__}: {error}".split())}
    print(json.dumps(answer))  # noqa: T201 - this is its output


def _there_and_back(pymilvus: Any, asked: dict[str, Any]) -> list[Any]:
    client = pymilvus.MilvusClient(asked["uri"], token=asked["token"], timeout=10)
    name = f"bident_check_{uuid.uuid4().hex[:8]}"
    vectors = asked["vectors"]
    client.create_collection(name, dimension=len(vectors[0]), metric_type="COSINE", consistency_level="Strong")
    try:
        client.insert(name, [{"id": place, "vector": vector} for place, vector in enumerate(vectors)])
        return [hits[0]["id"] if hits else None for hits in client.search(name, data=vectors, limit=1)]
    finally:
        client.drop_collection(name)


if __name__ == "__main__":
    main()
