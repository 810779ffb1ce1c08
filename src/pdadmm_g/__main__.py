"""``python -m pdadmm_g`` is the ``pdadmm-g`` command."""

from __future__ import annotations

import sys


def main() -> None:
    """The command, from the first import on: an interrupt before it is there ends like one after."""
    try:
        from .cli import main
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    main()


if __name__ == "__main__":
    main()
