"""The returns benchmark: trained agents play whole games, and the scores become reports. Torch-free until work starts.

`adapters` is what it knows of an agent, `handler` runs one job (one evaluation seed), `runner.BenchmarkRunner` a whole
benchmark, `reporting` writes the reports.
"""
