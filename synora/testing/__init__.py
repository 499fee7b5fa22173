"""What packages that build on synora need to test their agents, environments and adapters without real ones."""
