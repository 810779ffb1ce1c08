"""``python -m pdadmm_g`` is the ``pdadmm-g`` command."""

from .cli import main

if __name__ == "__main__":
    main()
