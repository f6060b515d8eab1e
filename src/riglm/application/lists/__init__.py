"""What a list of tools is made of and how it is written: views, choices, surfaces, riglm's own tools."""
