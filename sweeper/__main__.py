"""Entry point: `sweeper` and `python -m sweeper`."""

import sys

from sweeper.cli import run_cli


def main() -> None:
    sys.exit(run_cli(sys.argv[1:]))


if __name__ == "__main__":
    main()
