"""preprocess on Spark: the same core in Spark's Python workers."""
