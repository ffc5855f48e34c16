"""The pipeline, its command line and what stands in for a cluster on one machine."""
