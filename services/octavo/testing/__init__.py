"""What users and we test with: clusters, tiny models, a simulated engine, invariants."""
