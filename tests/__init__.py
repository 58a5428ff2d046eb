"""Tests of clusterproof itself."""
