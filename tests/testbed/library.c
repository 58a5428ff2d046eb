/* A library that does nothing when it is loaded. */
int nothing_at_all;
