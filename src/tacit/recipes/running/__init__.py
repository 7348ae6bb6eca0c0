"""Running a recipe: its job, its folder, its charges, and what comes out at the end."""
