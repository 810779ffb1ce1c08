"""Bytes that atheris chooses by the lines they reach. What reads them is imported while atheris watches, not before."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path


def run_guided(name: str, cases: int, seed: int, report: Path) -> None:
    """Give one of the readers so many inputs, from valid files on, then end the process: atheris has no other end."""
    import atheris

    with atheris.instrument_imports(include=["pdadmm_g", "numpy", "yaml"]):
        from pdadmm_g import config, estimator  # noqa: F401
        from pdadmm_g.data import datasets  # noqa: F401
        from pdadmm_g.runs import folder as run_folder  # noqa: F401
    from .limits import judge, limits
    from .readers import reader, write_corpus
    from .tally import Tally

    tally = Tally(cases, report)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    corpus = folder / "corpus"
    corpus.mkdir()
    write_corpus(name, seed, corpus)
    read = reader(name, folder)

    def one(content: bytes) -> None:
        ending, what = judge(lambda: read(content))
        tally.add(ending, what, bytes=content[:400].hex())
        if tally.complete:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)

    with limits():
        flags = [f"-seed={seed + 1}", "-max_len=4096", "-verbosity=0", "-rss_limit_mb=0", "-timeout=60"]
        atheris.Setup([sys.argv[0], str(corpus), *flags], one)
        atheris.Fuzz()
