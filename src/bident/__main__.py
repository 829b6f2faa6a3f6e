"""``python -m bident``: the same as the ``bident`` command."""

from bident.cli import main

if __name__ == "__main__":
    main()
