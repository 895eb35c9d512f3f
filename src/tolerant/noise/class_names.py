"""Classes by name: the paper's maps, and the superclasses of CIFAR-100 as published."""

from __future__ import annotations

from tolerant.class_names import CIFAR10, FASHION_MNIST

# Data set -> (class names in the data set's order, the paper's pairs of section 4.2).
PAPER_MAPS: dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    "cifar10": (
        CIFAR10,
        (
            ("truck", "automobile"),
            ("bird", "airplane"),
            ("deer", "horse"),
            ("cat", "dog"),
            ("dog", "cat"),
        ),
    ),
    "fashion-mnist": (
        FASHION_MNIST,
        (
            ("Ankle boot", "Sneaker"),
            ("Sneaker", "Sandal"),
            ("Pullover", "Shirt"),
            ("Coat", "Dress"),
            ("Dress", "Coat"),
        ),
    ),
}

CIFAR100_SUPERCLASSES: dict[str, tuple[str, ...]] = {
    name: tuple(classes.split())
    for name, classes in {
        "aquatic_mammals": "beaver dolphin otter seal whale",
        "fish": "aquarium_fish flatfish ray shark trout",
        "flowers": "orchid poppy rose sunflower tulip",
        "food_containers": "bottle bowl can cup plate",
        "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
        "household_electrical_devices": "clock keyboard lamp telephone television",
        "household_furniture": "bed chair couch table wardrobe",
        "insects": "bee beetle butterfly caterpillar cockroach",
        "large_carnivores": "bear leopard lion tiger wolf",
        "large_man-made_outdoor_things": "bridge castle house road skyscraper",
        "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
        "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
        "medium_mammals": "fox porcupine possum raccoon skunk",
        "non-insect_invertebrates": "crab lobster snail spider worm",
        "people": "baby boy girl man woman",
        "reptiles": "crocodile dinosaur lizard snake turtle",
        "small_mammals": "hamster mouse rabbit shrew squirrel",
        "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
        "vehicles_1": "bicycle bus motorcycle pickup_truck train",
        "vehicles_2": "lawn_mower rocket streetcar tank tractor",
    }.items()
}


def same_name(name: str) -> str:
    """The form in which two spellings of a class meet: "Ankle boot" and "ankle_boot"."""
    return str(name).strip().lower().replace(" ", "_").replace("-", "_")
