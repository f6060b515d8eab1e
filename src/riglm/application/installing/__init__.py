"""riglm put in front of a client's servers, and taken away again."""
