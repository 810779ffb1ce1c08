"""Who computes what, where.

A worker:
``worker``      its layers, and the one epoch function of the package
``phases``      the elementwise part of an epoch, written into the state
``backends``    how phases are run: in blocks, compiled, by kernels of our own
``kernels``     those kernels, in Triton
``cuda_graph``  a whole epoch recorded and replayed
``workspace``   memory beside the state, and the precision of the products
``precision``   those products
``stacking``    small equal layers that take every step together
``culprit``     where a NaN came from

Several:
``plan``        which worker has which layers
``team``        the processes that train together
``row_sums``    sums over the rows of all shards
``agreement``   what one process finds wrong, all know
``gathering``   rows of several processes, brought together in each
``link``        a worker's end of a boundary that it shares
``codec``       what p and q look like on the wire
``launch``      joining a team, and starting one on this machine
``folder_store``  what processes of one user tell each other in private
``watchdog``    what happens when a worker dies or hangs
``replicas``    do processes with the same layers have the same weights?
"""
