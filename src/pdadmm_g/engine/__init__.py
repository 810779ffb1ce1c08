"""Who computes what, where.

A worker:
``worker``      its layers, and the one epoch function of the package
``phases``      the elementwise part of an epoch, written into the state, and how it is run
``kernels``     Triton kernels for it
``stacking``    small equal layers that take every step together
``precision``   the large products of an epoch, and their memory

Several:
``layout``      which worker has which layers
``team``        the processes that train together, what they tell each other, and sums over the rows of all shards
``link``        a worker's end of a boundary that it shares: what p and q look like as messages
``gathering``   rows of several processes, brought together in each
``launch``      joining a process group, and starting one on this machine
``watchdog``    what happens when a worker dies, hangs or has other weights than its replicas
"""
