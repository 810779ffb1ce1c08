"""``python -m pdadmm_g`` is the ``pdadmm-g`` command."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """The command, from the first import on: an interrupt before it is there ends like one after.

    Libraries leave a million objects that stay as long as the process: to look through them for garbage again and
    again, and once more at the end, took a second of a short run.
    """
    gc.set_threshold(50_000)
    try:
        try:
            from .cli import main
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)
        main()
    finally:
        if "triton" not in sys.modules:  # which would complain of every object that nobody collects
            gc.freeze()


if __name__ == "__main__":
    main()
