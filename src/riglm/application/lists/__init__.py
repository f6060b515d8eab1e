"""What lists of tools are made of and how they are written: views, choices, surfaces, riglm's own tools in words."""
