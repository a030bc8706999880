"""What a model is trained on, one file a task, found by file name."""
