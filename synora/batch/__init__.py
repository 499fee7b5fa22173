"""Plans of jobs and the executors that run them."""
