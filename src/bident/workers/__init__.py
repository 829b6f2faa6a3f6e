"""Several tensor servers on the same ports: a supervisor, its workers, and what keeps them of one mind."""
