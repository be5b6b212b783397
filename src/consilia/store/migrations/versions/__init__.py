"""One file a version of the coordinator's store; its revision is the version's number."""
