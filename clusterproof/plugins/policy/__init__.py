"""What a site decides for itself: numbers, expectations, checks it does without, verdicts it reads otherwise."""
