"""The commit pipeline: a batch of decisions is persisted, then its commands are executed."""
