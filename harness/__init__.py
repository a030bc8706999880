"""The harness: spec, data, train, evaluate, aggregate, judge, site; one idea a file, data flows one way."""
