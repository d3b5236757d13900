"""The checkers, one property in each file; the catalogue finds every module in this folder."""
