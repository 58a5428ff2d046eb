"""Laws over the whole fault matrix: findings are reported whatever else is missing, wrong or reordered."""
