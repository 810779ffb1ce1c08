"""Training: from rows with targets to a network.

The door:
``prepare``         from data to a problem
``problem``         what is to be trained
``fit``             a problem goes in, a network comes out, whoever computes it
``refit``           the same again on all labels, with what was chosen

What happens behind it:
``train``           greedy growth from stage to stage
``stage``           one depth: epochs, evaluation, rules that end it
``member``          what a worker has and knows in every stage
``choose``          what is left to the data: weight decay, and learning from unlabelled nodes
``mesh_choice``     how many workers and shards, where that is left open
``growth``          the weights that a stage starts from
``warm_start``      a network that training starts from
``standardization`` numbers to learn in units of their own, and the network back in those of the data
``progress``        what is shown of a run that goes on
``records``         the record of an epoch, a line of metrics.jsonl, and who is called with it
``checkpoint``      what a run goes on from, on disk
``model_file``      a trained network with all that belongs to it, on disk
``rounds``          learning from unlabelled nodes: pseudo-labels and the rounds of a stage
``calibration``     the temperature that makes probabilities right
``local_workers``   several processes on this machine
``worker_process``  the program of one of them
``sharded``         training on a folder of shards
``sharded_scores``  a trained network on such a folder
"""
