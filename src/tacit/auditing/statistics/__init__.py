"""From scores and guesses to lower bounds on ε, each with its confidence, and to a verdict."""
