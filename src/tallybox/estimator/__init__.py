"""The learned estimator: from any detector's boxes and a few counts to counts as distributions."""
