"""What each verb does, short of printing: everything below `cli` that needs torch."""
