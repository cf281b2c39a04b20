"""The paper's f1 ... f8 by what they are for: the rows of a weight ``[8, segments]``, in the order of `Activations`."""

(
    EDGE_OF_RELEVANCE,
    EDGE_OF_DISTANCE,
    LIKENESS,
    ROW_OF_RELEVANCE,
    ROW_OF_DISTANCE,
    CERTAINTY_OF_ATTENTION,
    CERTAINTY_OF_DISTANCE,
    CONFIDENCE,
) = range(8)
