"""The floor that stands on torch: devices, seeding, timing, checkpoints, replay and the training loop."""
