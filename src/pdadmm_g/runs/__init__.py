"""Run folders: one training run with its settings, metrics, model and summary.

``run``          from a configuration to a finished folder; a fitted estimator as such a folder
``sharded``      training, labels and scores on a folder of shards
``folder``       the files of a run
``scoring``      figures of a model, and the summary
``export``       the model for other programs
"""
