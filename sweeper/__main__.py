"""Entry point: `sweeper` and `python -m sweeper`."""

import sys

from sweeper.cli import run_cli
from sweeper.present.streams import keep_standard_files


def main() -> None:
    keep_standard_files()
    sys.exit(run_cli(sys.argv[1:]))


if __name__ == "__main__":
    main()
