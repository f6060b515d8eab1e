"""What every request takes on its way to a server and back, whoever asks and however many servers there are."""
