"""What is tested of the engine's parts by themselves, by component."""
