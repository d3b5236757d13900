"""What a session raises when the candidate did something forbidden."""

from __future__ import annotations


class Violation(AssertionError):
    """A clause is broken; ``fatal`` means that the candidate's process is lost, ``hung`` that a time limit was why."""

    def __init__(
        self,
        message: str,
        clause: str = "",
        fatal: bool = False,
        hung: bool = False,
        from_outside: bool = False,
    ) -> None:
        super().__init__(message)
        self.clause = clause
        """Empty if nothing says which; then it is the first one of the property."""
        self.fatal = fatal
        self.hung = hung
        self.from_outside = from_outside
        """Whether another program ended the process, so that the candidate has violated nothing."""
