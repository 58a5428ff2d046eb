"""By kind: how it is collected, read out of text, and made into facts."""
