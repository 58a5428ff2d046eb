"""Arithmetic over integers whose sums no order of summation changes: any difference, of a single bit, is a fault."""
