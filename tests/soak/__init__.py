"""Soak: random runs, killed and resumed at random, must end with the weights of the undisturbed run.

Every run is drawn from its own seed. Its processes carry a mark in their environment, by which they are found again
whoever their parent is now: nothing may be left of them once a run has ended, however it ended.

``cases``      the runs and faults that are drawn
``processes``  the processes of a run, found by their mark
``trial``      one run, carried out and watched
``campaign``   many of them, and what came of them
"""
