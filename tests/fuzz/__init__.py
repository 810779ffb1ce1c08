"""Fuzz everything that reads a file, a setting, a graph or a command line.

The property: a case ends in success with a sound result or in an InputError of one line (the command: exit code 0, 2 or
3, and for 2 exactly one line "error: ..."), within seconds, within bounded memory, and a refused input leaves no file.

    python -m tests.fuzz --cases 100000 --seed 0 --out results/fuzz.json

Cases come from valid inputs by structure-aware mutations, each from its own seed: --target NAME --seed S --cases 1
repeats one. Where atheris is installed it goes over the four readers of bytes as well, guided by coverage.

``campaign``   all targets, each in its own process, and the result
``cases``      the cases of one target, one after the other
``tally``      how they ended, and what was found
``limits``     the bounds of a case, and what its ending means
``targets``    all targets by name, from ``graphs``, ``tables``, ``objects``, ``runs``, ``settings`` and ``commands``
``mutations``  what is done to a valid input
``valid``      the valid inputs
``guided``     bytes chosen by atheris, for those of ``readers``
"""
