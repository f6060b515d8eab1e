"""How well each strategy would have done: on evaluation data, and in the sessions that riglm recorded."""
