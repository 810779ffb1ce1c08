"""Run folders: one training run with its settings, metrics, model and summary.

``run``          from a configuration to a finished folder; a fitted estimator as such a folder
``apply``        a trained model on data: figures and predictions, by one process or several
``folder``       the files of a run
``scoring``      figures of a model, and the summary
``export``       the model for other programs
"""
