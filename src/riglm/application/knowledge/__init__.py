"""`inner_voice.retrieve`: what is known, found by meaning and told as it is."""
