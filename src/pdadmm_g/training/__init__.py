"""Training: from rows with targets to a network.

The door:
``prepare``         from data to a problem: the rows that train and validate, numbers in units of their own,
                    and a network that training starts from
``fit``             a problem goes in, a network comes out, in this process or in several
``finish``          which network was kept, the same again on all labels, calibration, the model file

What happens behind it:
``choose``          what is left open: features, network, learning from unlabelled nodes, workers and shards
``linear``          linear models of a few rows, which tell quickly what features are worth
``train``           greedy growth from stage to stage
``stage``           one depth: epochs, evaluation, rules that end it
``rounds``          learning from unlabelled nodes: pseudo-labels and the rounds of a stage
``member``          what a worker has and knows in every stage, and how rows are spread over processes
``records``         the record of an epoch, a line of metrics.jsonl, and who is called with it
``checkpoint``      what a run goes on from, on disk
``progress``        what is shown of a run that goes on
"""
