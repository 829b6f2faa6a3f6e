"""What a tensor model is: its declaration, its folder, and the repositories that hold folders."""
