"""What each kind of operator means and how it is drawn: one file for each kind, named as plans name it."""
