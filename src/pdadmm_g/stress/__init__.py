"""The software tried itself: on this machine, and under faults.

``doctor``  a check of this installation
``soak``    random runs, killed and resumed at random
``fuzz``    broken files, settings, graphs and command lines
"""
