"""What stands in for the cluster on one machine."""
