"""Graphs: where they come from, whether they are sound, and the rows that train.

``datasets``             the benchmarks and the embedded digits, by name
``graph_files``          .npz and .pt files of people's own
``checks``               what a graph must be to train or predict on it
``augmentation``         multi-hop operators: what the graph adds to the features
``augmentation_choice``  which of them, where that is left to the data
``examples``             the rows that train or validate
``weights``              what each of them weighs
"""
