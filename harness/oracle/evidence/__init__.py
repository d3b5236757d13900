"""What checkers share: facts of a trial that are derived from its plan and its history."""
