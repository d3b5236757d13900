"""What every floor of the harness may use, and that uses none of them."""
