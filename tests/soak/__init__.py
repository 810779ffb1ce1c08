"""The soak: runs of ``train`` that are killed, stopped or interrupted at random and resumed.

``cases``  what is drawn: settings, faults, workers and shards
``trial``  one run: undisturbed, then disturbed, and compared
"""
