"""Configs: public facades at the documented paths, and the YAML that ships with the package."""
