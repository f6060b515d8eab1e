"""Those who look on, and what they decide: the control API, behind its port."""
