"""The software tried itself: on this machine, and under blows.

``doctor``  is everything here that training needs?
``soak``    random runs, killed and resumed at random
``fuzz``    broken files, settings, graphs and command lines
"""
