"""Training: from data to a network.

``prepare``         from a graph or a matrix to a problem
``fit``             from a problem to a network, whoever computes it and by whatever method
``train``           greedy growth from stage to stage
``stage``           one depth: epochs, evaluation, rules that end it
``growth``          the weights that a stage starts from
``penalties``       rho over time
``records``         the record of an epoch, a line of metrics.jsonl
``checkpoint``      what a run goes on from
``weight_decay``    how much of it, where that is left to the data
``gradient``        the methods to compare with, by backpropagation
``local_workers``   several processes on this machine
``worker_process``  the program of one of them
"""
