"""Tests of the repository: the template, the artifact, README and docs, the sample events."""
