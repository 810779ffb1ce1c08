"""Training: from rows with targets to a network.

The door:
``prepare``         from data to a problem
``problem``         what is to be trained
``fit``             a problem goes in, a network comes out, whoever computes it and by whatever method
``refit``           the same again on all labels, with what was chosen

What happens behind it:
``train``           greedy growth from stage to stage
``stage``           one depth: epochs, evaluation, rules that end it
``member``          what a worker has and knows in every stage
``mesh_choice``     how many workers and shards, where that is left open
``growth``          the weights that a stage starts from
``warm_start``      a network that training starts from
``judging``         how good the outputs of a network are for rows with targets
``standardization`` numbers to learn in units of their own, and the network back in those of the data
``progress``        what is shown of a run that goes on
``records``         the record of an epoch, a line of metrics.jsonl
``callback``        whoever is told of the epochs as they end
``checkpoint``      what a run goes on from, on disk
``model_file``      a trained network with all that belongs to it, on disk
``layer_tensors``   a layer as the tensors of a checkpoint, and back
``rounds``          rounds of a stage in which nodes without labels teach
``round_rows``      the rows of such a round, from one process or from several that have nodes of their own
``unlabelled_choice``  whether and how they do, where that is left to the data
``short_runs``      runs by which settings are chosen, several at a time
``weight_decay``    how much of it, where that is left to the data
``calibration``     the temperature that makes probabilities right
``gradient``        the methods to compare with, by backpropagation
``gcn``             one of them, which takes the whole graph
``grand``           another, which sees random copies of the features
``local_workers``   several processes on this machine
``worker_process``  the program of one of them
``sharded``         training on a folder of shards
``sharded_scores``  a trained network on such a folder
"""
