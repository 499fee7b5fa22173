"""World-model algorithms, each complete in one folder; none imports another."""
