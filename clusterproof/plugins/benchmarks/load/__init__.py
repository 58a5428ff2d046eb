"""The programs that load a node and measure it: one file per collector; they run one after another."""
