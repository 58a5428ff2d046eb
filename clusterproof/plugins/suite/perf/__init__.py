"""The parts of a run that load nodes and measure pairs: what asks for them, and what a person sees."""
