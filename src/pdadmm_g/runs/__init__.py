"""Run folders: one training run with its settings, metrics, model and summary.

``train_run``    from a configuration to a finished folder
``folder``       the files of a run
``scoring``      accuracies and the summary
``progress``     what is shown of a run that goes on
``tensorboard``  scalars for TensorBoard
``export``       the model for other programs
"""
