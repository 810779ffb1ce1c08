"""Run folders: one training run with its settings, metrics, model and summary.

``train_run``    from a configuration to a finished folder
``sharded_run``  the same on a folder of shards
``sharded_process``  the program of one of its processes
``sharded_predictions``  labels and scores for such a folder
``folder``       the files of a run
``fitted``       an estimator that was fitted in Python as such a folder, and back
``scoring``      accuracies and the summary
``tensorboard``  scalars for TensorBoard
``export``       the model for other programs
"""
