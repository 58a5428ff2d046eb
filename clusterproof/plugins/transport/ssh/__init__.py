"""Over SSH, by Fabric."""
