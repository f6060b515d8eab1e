"""What clients wrote down without riglm, made records and lessons."""
