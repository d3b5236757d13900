"""How plans are drawn: profiles and Hypothesis strategies."""
