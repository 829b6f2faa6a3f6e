"""What runs on this machine: ports and who has them, processes, and the record of a server in the background."""
