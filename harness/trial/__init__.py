"""One trial: the nemesis, the run and the judgement."""
