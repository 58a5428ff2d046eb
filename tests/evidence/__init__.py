"""Evidence by kind: collecting it, parsing it from text, and deriving facts."""
