"""What `riglm doctor` looks at: checks that find something, each without the others."""
