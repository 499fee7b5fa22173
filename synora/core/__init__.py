"""The torch-free floor: errors, files, config, registry, job specs and results."""
