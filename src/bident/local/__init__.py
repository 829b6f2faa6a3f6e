"""This machine: ports and who has them, processes, the record of a server in the background, files written whole."""
