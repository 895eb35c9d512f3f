"""The networks by name, and the layers they are made of."""
