"""``bident run`` of a text model: a conversation in the terminal, or one answer on standard output."""
