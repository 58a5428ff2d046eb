"""What others send and hand over, altered at random: whatever it becomes, it is read or refused, and soon."""
