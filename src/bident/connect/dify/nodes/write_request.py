"""What a person filled in becomes a request to the model."""

import json
from typing import Any

PLAN: dict[str, Any] = {"inputs": [], "outputs": []}


def main(**given: Any) -> dict[str, str]:
    """The request as JSON: one row, of the inputs in PLAN."""
    inputs = [tensor(entry, given) for entry in PLAN["inputs"] if is_given(entry, given)]
    return {"request": json.dumps({"inputs": inputs, "outputs": PLAN["outputs"]}, ensure_ascii=False)}


def is_given(entry: dict[str, Any], given: dict[str, Any]) -> bool:
    """Whether an optional input was filled in; what must be there counts as given."""
    return not entry["optional"] or any(given.get(name) not in (None, "") for name in entry["variables"])


def tensor(entry: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """One input. Raises what is wrong with what was filled in."""
    values = [given.get(name) for name in entry["variables"]]
    how = entry["how"]
    shape = entry["shape"]
    if how == "list":
        data = read(entry["name"], entry["datatype"], values[0] or "")
        values = flat(data)
        check(entry, values)
        shape = fill(entry, data, len(values))
    elif how == "choice":
        values = [str(value).lower() == "true" for value in values]
    return {"name": entry["name"], "shape": entry["lead"] + shape, "datatype": entry["datatype"], "data": values}


def read(name: str, datatype: str, text: str) -> list[Any]:
    """A JSON list, or what people paste instead: numbers with commas or blanks between them, texts line by line."""
    try:
        value = json.loads(text)
    except ValueError:
        if datatype == "BYTES":
            return text.splitlines()
        try:
            value = [json.loads(word) for word in text.replace(",", " ").replace(";", " ").split()]
        except ValueError:
            raise ValueError(f"{name}: write a JSON list such as [1, 2, 3], not {text[:60]!r}") from None
    return value if isinstance(value, list) else [value]


def flat(value: Any) -> list[Any]:
    """All elements of lists within lists."""
    if not isinstance(value, list):
        return [value]
    return [element for item in value for element in flat(item)]


def check(entry: dict[str, Any], values: list[Any]) -> None:
    """Raises where an element is of another kind than the input's."""
    kinds = {"BYTES": (str,), "BOOL": (bool,)}.get(entry["datatype"], (int, float))
    for value in values:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(f"{entry['name']}: {value!r} is not of type {entry['datatype']}")


def fill(entry: dict[str, Any], data: list[Any], count: int) -> list[int]:
    """The shape of ``count`` elements: as they are nested, else as they fill the model's."""
    dims = entry["shape"]
    shape = nesting(data)
    if len(shape) != len(dims) or any(dim not in (-1, size) for dim, size in zip(dims, shape, strict=True)):
        shape = spread(dims, count)
    if not count or product(shape) != count:
        raise ValueError(f"{entry['name']}: {count} elements do not fill the shape {dims} (-1 is any number)")
    return shape


def spread(dims: list[int], count: int) -> list[int]:
    """``dims`` where the last open one takes what the fixed ones leave, and other open ones are 1."""
    left = count // max(1, product([dim for dim in dims if dim != -1]))
    shape: list[int] = []
    for dim in reversed(dims):
        shape.insert(0, left if dim == -1 else dim)
        left = 1 if dim == -1 else left
    return shape


def product(sizes: list[int]) -> int:
    """How many elements there are."""
    total = 1
    for size in sizes:
        total *= size
    return total


def nesting(data: Any) -> list[int]:
    """The shape that lists within lists have, as their first elements say."""
    shape = []
    while isinstance(data, list):
        shape.append(len(data))
        data = data[0] if data else None
    return shape
