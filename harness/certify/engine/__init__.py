"""What every certificate shares: properties, the hunt for a breach, shrinking, saved failures, planted bugs, levels."""
