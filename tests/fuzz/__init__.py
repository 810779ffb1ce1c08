"""Fuzz every door by which files, settings, graphs and command lines come in, with hypothesis.

The property: a case ends in success with a sound result or in an InputError of one line (the command: exit code 0, 2 or
3, and for 2 exactly one line "error: ..."), within seconds, within bounded memory, and what only reads leaves no file.

    python -m tests.fuzz --cases 50000 --out results/fuzz/fuzz.json

The suite runs a few cases of each door, always the same ones. A violation is shrunk by hypothesis and printed with what
was drawn; --door NAME with the same --seed and --cases finds it again.

``doors``       each door by its name: draws an input, goes through, checks what comes out
``strategies``  what is done to a valid input
``valid``       the valid inputs
``limits``      the bounds of a case, and what its ending means
"""
