"""Results made readable: summaries, their JSON form and pictures."""
