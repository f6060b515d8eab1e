"""MetaMCP as a gateway whose namespaces riglm changes."""
