"""The demo institute: its people, tree and cluster, one day of its work, and how it is told."""
