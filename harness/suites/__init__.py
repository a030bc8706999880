"""What a trained model is measured by, one file a suite, found by file name."""
