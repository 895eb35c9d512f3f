"""The networks by name, and the layers they are made of."""

from tolerant.train.networks.by_name import NETWORKS, Network, build, input_size

__all__ = ["NETWORKS", "Network", "build", "input_size"]
