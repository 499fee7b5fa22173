"""The compute sweep: parameters, FLOPs, latency, throughput and memory of models on synthetic tensors."""
