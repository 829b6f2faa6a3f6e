"""Source of a sample model: `bident zoo build` copies it into the model's folder."""
