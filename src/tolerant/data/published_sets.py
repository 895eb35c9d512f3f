"""The data sets that have a name, one card each: everything that is said of a set is read from its card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tolerant import class_names
from tolerant.data.dataset import NoisyDataset
from tolerant.data.published.layouts import IDX_FILES, load_cifar, load_cifar_n, load_digits, load_idx
from tolerant.data.published.local_files import Download, Root


@dataclass(frozen=True, kw_only=True)
class Card:
    """One data set by name. For one of your own, add it to `CARDS`; only the first three must be given.

    Args:
        name: as in `load(name)` and `RunSpec(dataset=name)`.
        title: as reports print it.
        loader: called with the card, the split ("train" or "test") and the folder of published sets.
        class_names: what label 0, 1, ... is called.
        train_rows: rows of the training split; None if not known before it is loaded.
        test_rows: of the test split.
        shape: of one row's inputs.
        downloads: what has to be there first.
        by_people: whether its labels are people's, and partly wrong: noise "human".
        outside: the data set whose pictures show none of these classes, for open-set noise.
        note: where it comes from, if it is not downloaded.
    """

    name: str
    title: str
    loader: Callable[[Card, str, Root], NoisyDataset]
    class_names: tuple[str, ...] = ()
    train_rows: int | None = None
    test_rows: int | None = None
    shape: tuple[int, ...] | None = None
    downloads: tuple[Download, ...] = ()
    by_people: bool = False
    outside: str | None = None
    note: str = ""

    def load(self, split: str = "train", root: Root = None) -> NoisyDataset:
        """One of its two splits."""
        if split not in ("train", "test"):
            raise ValueError(f"split must be 'train' or 'test'; got {split!r}")
        return self.loader(self, split, root)


def downloads() -> dict[str, Download]:
    """What can be downloaded, by name: sets that share their pictures share a download."""
    return {download.name: download for card in CARDS.values() for download in card.downloads}


_CIFAR = "https://www.cs.toronto.edu/~kriz"
_CIFAR_N = "https://github.com/UCSC-REAL/cifar-10-100n/raw/main/data"

_CIFAR10 = Download(
    "cifar10",
    "CIFAR-10",
    "cifar-10-batches-bin",
    {
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    {f"{_CIFAR}/cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
    170,
    "none stated; cite Krizhevsky 2009",
)
_CIFAR100 = Download(
    "cifar100",
    "CIFAR-100",
    "cifar-100-binary",
    {"train.bin": "6172c7755cfe09b2fe270c85cebc1b15", "test.bin": "4499cfba6c016c1be1438163640a0898"},
    {f"{_CIFAR}/cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
    169,
    "none stated; cite Krizhevsky 2009",
)
_CIFAR10N = Download(
    "cifar10n",
    "CIFAR-10N human labels",
    "cifar-n",
    {"cifar10n_labels.npz": "6e0fa9f3cd89179617247acda7453b80"},
    {f"{_CIFAR_N}/CIFAR-10_human.pt": None},
    3,
    "CC BY-NC 4.0",
)
_CIFAR100N = Download(
    "cifar100n",
    "CIFAR-100N human labels",
    "cifar-n",
    {"cifar100n_labels.npz": "b274f5e1423d5f4c9ae93e91de1d2089"},
    {f"{_CIFAR_N}/CIFAR-100_human.pt": None},
    1,
    "CC BY-NC 4.0",
)


def _like_mnist(
    name: str,
    title: str,
    class_names: tuple[str, ...],
    url: str,
    *sums: tuple[str, str],
    size_mb: int,
    licence: str,
) -> Card:
    """MNIST's files below `url`; `sums`: md5 of what is in each of `IDX_FILES`, and of the file itself."""
    contents = {file: content for file, (content, _) in zip(IDX_FILES, sums, strict=True)}
    remotes = {f"{url}/{file}": packed for file, (_, packed) in zip(IDX_FILES, sums, strict=True)}
    return Card(
        name=name,
        title=title,
        loader=load_idx,
        class_names=class_names,
        train_rows=60_000,
        test_rows=10_000,
        shape=(28, 28, 1),
        downloads=(Download(name, title, name, contents, remotes, size_mb, licence),),
    )


_cifar = partial(Card, train_rows=50_000, test_rows=10_000, shape=(32, 32, 3))
_cifar10n = partial(_cifar, class_names=class_names.CIFAR10, downloads=(_CIFAR10, _CIFAR10N), by_people=True)

# In the order in which reports list them.
CARDS: dict[str, Card] = {
    card.name: card
    for card in (
        _like_mnist(
            "fashion-mnist",
            "Fashion-MNIST",
            class_names.FASHION_MNIST,
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
            ("f4a8712d7a061bf5bd6d2ca38dc4d50a", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            ("9018921c3c673c538a1fc5bad174d6f9", "25c81989df183df01b3e8a0aad5dffbe"),
            ("8181f5470baa50b63fa0f6fddb340f0a", "bef4ecab320f06d8554ea6380940ec79"),
            ("15d484375f8d13e6eb1aabb0c3f46965", "bb300cfdad3c16e7a12a480ee83cd310"),
            size_mb=31,
            licence="MIT",
        ),
        _cifar(
            name="cifar10",
            title="CIFAR-10",
            loader=load_cifar,
            class_names=class_names.CIFAR10,
            downloads=(_CIFAR10,),
            outside="cifar100",
        ),
        _cifar(
            name="cifar100",
            title="CIFAR-100",
            loader=partial(load_cifar, label_bytes=2, label_byte=1),
            class_names=class_names.CIFAR100,
            downloads=(_CIFAR100,),
        ),
        _cifar(
            name="cifar100-coarse",
            title="CIFAR-100 superclasses",
            loader=partial(load_cifar, label_bytes=2),
            class_names=class_names.CIFAR100_COARSE,
            downloads=(_CIFAR100,),
        ),
        *(
            _cifar10n(
                name=f"cifar10n-{given}",
                title=f"CIFAR-10N {title}",
                loader=partial(load_cifar_n, given=given),
            )
            for given, title in (
                ("aggre", "aggregate"),
                ("random1", "random 1"),
                ("random2", "random 2"),
                ("random3", "random 3"),
                ("worse", "worse"),
            )
        ),
        _cifar(
            name="cifar100n",
            title="CIFAR-100N",
            loader=partial(load_cifar_n, given="noisy", label_bytes=2, label_byte=1),
            class_names=class_names.CIFAR100,
            downloads=(_CIFAR100, _CIFAR100N),
            by_people=True,
        ),
        _cifar(
            name="cifar100n-coarse",
            title="CIFAR-100N superclasses",
            loader=partial(load_cifar_n, given="noisy_coarse", true="clean_coarse", label_bytes=2),
            class_names=class_names.CIFAR100_COARSE,
            downloads=(_CIFAR100, _CIFAR100N),
            by_people=True,
        ),
        Card(
            name="digits",
            title="digits",
            loader=load_digits,
            class_names=tuple("0123456789"),
            train_rows=1_438,
            test_rows=359,
            shape=(8, 8, 1),
            note="part of scikit-learn",
        ),
    )
}
