"""The ``bident`` command."""


def main() -> None:
    """Run the command line."""
