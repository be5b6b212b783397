"""What happens to a model at a site: models, local work, per-example gradients, evaluation."""
