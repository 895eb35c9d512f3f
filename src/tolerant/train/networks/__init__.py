"""The networks by name, and the layers they are made of."""

from tolerant.train.networks.build import build, input_size
from tolerant.train.networks.cards import NETWORKS, Network

__all__ = ["NETWORKS", "Network", "build", "input_size"]
