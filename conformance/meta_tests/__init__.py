"""The suite is tested itself: its markers, its strength against planted bugs, and systems that do nothing."""
