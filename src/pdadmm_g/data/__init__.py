"""Graphs: where they come from, whether they are sound, and the rows that train.

``datasets``             the benchmarks and the embedded digits, by name
``graph``                a graph in memory
``adapters``             what else people have a graph in, as one: tables, matrices, objects of other libraries
``columns``              graphs in tables, whatever library they were read with
``matrices``             graphs in matrices
``labels``               labels as people have them
``graph_files``          .npz and .pt files of people's own
``table_files``          CSV, TSV and Parquet tables of nodes and edges, and GraphML
``feature_names``        columns of features by their names
``checks``               what a graph must be to train or predict on it
``targets``              what is learned where that is more than one class: several labels, numbers
``facts``                what there is to know of a graph before training
``splits``               which nodes train and validate, where that is not said
``edges``                whether edges have directions and join nodes of one class
``structure``            features of a graph that has none
``augmentation``         multi-hop operators: what the graph adds to the features
``augmentation_choice``  which of them, where that is left to the data
``linear_models``        linear models by which it is chosen
``propagation``          the sparse products behind them, a block of columns at a time
``column_file``          their input and their result where these do not fit in memory
``components``           the principal directions of features
``copies``               random copies of augmented features
``examples``             the rows that train or validate
``weights``              what each of them weighs
``tables``               graphs that are read a block at a time
``parquet``              those that are kept in Parquet tables
``shards``               a folder of shards, of which a process reads only its own
``sharding``             how such a folder is written
``sharded_augmentation`` augmentation where every process has its own nodes
``sharded_copies``       random copies of what it gives
"""
