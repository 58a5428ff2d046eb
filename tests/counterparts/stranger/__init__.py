"""Third-party plugins beside ours, and a third-party suite with ours installed."""
