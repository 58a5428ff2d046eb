"""The programs that load a node and measure it: one file per leaf; they run one after another."""
