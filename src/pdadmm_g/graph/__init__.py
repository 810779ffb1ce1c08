"""Graphs: where they come from, whether they are sound, and the rows that train.

``graph``         a graph in memory, the names of its features, and values as people have them
``targets``       what is learned of each node, classes, several labels or numbers, and what rows weigh
``checks``        what a graph must be to train or predict on it
``readers``       what else people have a graph in, as one: matrices, objects of other libraries, files
``tables``        tables of nodes and edges, of pandas and in files
``columns``       what the columns of a table mean, and the features that are made of them
``datasets``      the benchmarks and the embedded digits, by name
``parts``         a graph is a sequence of parts; its sizes, directions, homophily, structure
``propagation``   the graph's matrix, and its products with features; known labels of neighbours as features
``augmentation``  multi-hop operators: what the graph adds to features; principal directions, random copies
``candidates``    which of them are tried where that is left to the data, and the rows that they make
``examples``      the rows that train or validate, and which nodes they are, where that is not said
``shards``        a folder of shards, of which a process reads only its own, and how it is written
"""
