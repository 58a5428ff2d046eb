"""axe-core on a run's page: what assistive technology needs of it."""
