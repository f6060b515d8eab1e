"""An example of a plug-in for riglm."""
