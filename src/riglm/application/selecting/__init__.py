"""Prediction and filtering for agents in the same process, without a wire."""
