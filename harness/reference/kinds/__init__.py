"""How the reference runtime makes each kind of operator, and how its state is read: one file for each kind."""
