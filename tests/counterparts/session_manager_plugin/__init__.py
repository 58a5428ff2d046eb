"""AWS's session-manager-plugin with the tests' data channel: its double must do as it does."""
