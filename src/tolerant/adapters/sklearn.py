"""`NoisyLabelClassifier`: a scikit-learn classifier for labels that are partly wrong."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import (
    check_array,
    check_consistent_length,
    check_random_state,
    compute_sample_weight,
    get_tags,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, _check_y, check_is_fitted, validate_data
from torch import nn

from tolerant.adapters.sklearn_frames import (
    FrameReader,
    are_texts,
    as_pandas,
    as_texts,
    must_be_read,
)
from tolerant.adapters.sklearn_inputs import (
    InputReader,
    check_no_missing,
    compute_features,
    frame_ids,
    pick_extractor,
)
from tolerant.hints import warn_caller
from tolerant.own_data.choose_features import to_tune
from tolerant.own_data.classifiers.committee import Committee
from tolerant.own_data.classifiers.member import is_classifier
from tolerant.own_data.learn import learn
from tolerant.own_data.learned import Learned
from tolerant.own_data.settings import Settings
from tolerant.suspects.arguments import as_numpy
from tolerant.train.engine.device import pick_device
from tolerant.train.engine.evaluate import predict_log_proba

_SETTINGS = {field.name for field in fields(Settings)}


class NoisyLabelClassifier(ClassifierMixin, BaseEstimator):
    """A model trained on labels that may be wrong, which also says which ones it doubts.

    Rows that models from other folds think wrong are left out. Which model: for features classifiers are
    tried and the best taken, alone or together; for pictures, and where something is set that only networks
    have (loss, method, q, k, epochs, batch_size, lr, weight_decay, validation_fraction), a network. That is
    trained as in Zhang & Sabuncu 2018: L_q, then from a third of the epochs on only the rows whose label the
    model believes (p_y > k), the epoch being chosen on held-out noisy rows.

    Inputs are features (n, d), dense, sparse or a tensor; a pandas frame, which may have columns of words,
    dates and texts, and gaps; texts (n,), read as words and runs of characters; or pictures: uint8 (n,
    height, width, channels). Dense columns are standardised; a sparse matrix is scaled as a whole for
    networks. A classifier of your own gets X as it is.

    Parameters
    ----------
    loss : str or nn.Module
        "truncated-lq" (the above), or any name of ``tolerant.losses.REGISTRY``: "lq", "cce", "mae", ...
    method : "prune" or "rounds"
        "prune" is the above. "rounds" leaves no row out for good: a network trains each one under the label
        that seems to be its own, by the folds' predictions at first and then by its own, on blends of two
        rows (mixup). ``suspects_.trained_as`` says under which.
    q : float in [0, 1] or "auto"
        Of L_q: 0 is cross entropy, 1 half of MAE; larger tolerates more noise, learns slower.
        "auto" goes by the number of classes: 0.38 for two, 0.7 (the paper's) for ten, 0.5 from 25 on
        (:func:`tolerant.theory.choose_q` says why). A few thousand photographs are hard for a
        network that starts from nothing: at most 0.3.
    k : float in (0, 1) or "auto"
        Rows with p_y of at most k are pruned, unless they are more than half of the rows, or three quarters
        of their class: then the model is too weak to judge, and none of these are. "auto" takes the
        out-of-fold p_y below which as many rows lie as labels are estimated to be wrong
        (:func:`tolerant.own_data.learn.learn`); no true label is used. On digits (six noises, one seed each)
        neither "auto" nor the best k from 0.1 to 0.9 was more accurate than 0.5 (results/bench/rate.jsonl).
    model : "auto", str, classifier or callable
        "auto": see above. A name, such as "linear" or "trees" (``tolerant train --help`` has them all);
        "network", the one that suits the rows, or one by name, such as "mlp". Any classifier or pipeline of
        scikit-learn's kind that has ``predict_proba``, LightGBM's and others too. It is copied, rows are
        scored out of fold, doubted ones are left out, and it is fitted again. (With loss="lq" it is fitted a
        few times with the weights p_y^q instead, which minimises L_q.) Or a function ``(input_shape,
        num_classes) -> nn.Module``, with input_shape (features,) or (channels, height, width). The defaults
        of epochs and lr suit our networks; one of few weights may need a larger lr.
    epochs : int or None
        None: chosen by the number of rows.
    batch_size : int or None
        None: chosen by the number of rows.
    lr : float or None
        Of Adam; None: 0.002 for pictures, 0.001 for features.
    weight_decay : float
    validation_fraction : float
        Share of rows held out, with their given labels, to choose the epoch. Below 200 rows none are, and
        the last epoch is taken: a tenth of so few chooses by chance. So it is with `features`, on which
        a linear model is trained, for few epochs.
    features : str
        Pictures and texts (n,) as features of a pretrained extractor: a name that ``tolerant doctor`` lists,
        such as "lite0" or "minilm", on which the default model is linear. "auto" takes a bundled one for
        photographs, where installed. "none", the default: a `fit` does not depend on what else is installed.
    tune : bool
        Train the network that `features` names further on the pictures, from what its features tell of the
        labels: more are right then, for many times the seconds (docs/howto/embeddings.md). A GPU helps.
    folds : int
        `p_y_` and `suspects_` come from models that did not train on the row: this many, beside the final
        one, each on its share. 0 saves their time (5 folds: four fifths of it all, or more) and misses
        memorised rows.
    class_weight : "auto", "balanced", dict or None
        For classifiers "auto" moves predictions towards rare classes as far as the given labels ask for, out
        of fold, and "balanced" as if all classes were as frequent. For networks "balanced" weighs the rows,
        and "auto" does nothing. A dict weighs the rows of any model.
    warm_start : bool
        Go on training from the last `fit`'s model.
    device : "auto", "cpu" or "cuda"
    random_state : int, RandomState or None
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_ : ndarray, int, ndarray
        As everywhere in scikit-learn.
    p_y_ : ndarray (n,)
        Probability of each row's given label, as if all rows had counted alike: only then do doubts say
        something about labels.
    kept_ : ndarray of bool (n,)
        False for rows that training had pruned at its end.
    noise_rate_, noise_rate_interval_ : float, (float, float)
        Estimated share of wrong labels, and between which values it may lie. Labels made by rules, which
        the model learns with their mistakes, have at least so many: see docs/howto/noise-rate.md. If
        ``suspects_.noise_rate.vague``, the interval is all that is known.
    transition_ : ndarray (classes, classes)
        Estimated, [i, j] = P(given = j given that true = i).
    suspects_ : tolerant.suspects.Suspects
        Rows whose label the model would change, most doubtful first; ``suspects_.to_frame()``. Their `ids`
        are a frame's own index where that names each row, else row numbers, as `index` always is.
    model_, history_, k_ : object, list of dict, float or None
        Of a network: itself, one dict an epoch, the threshold used (None without pruning). Of classifiers:
        the fitted one, or several as a ``Committee``; an empty list; None.
    tried_ : tuple
        Of "auto": the models that were tried, with name, score and seconds.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2)); true = np.where(X[:, 0] > 0, "yes", "no")
    >>> given = np.where(rng.random(300) < 0.2, "yes", true)
    >>> model = NoisyLabelClassifier(epochs=20, folds=3, random_state=0).fit(X, given)
    >>> bool(model.score(X, true) > 0.9), bool(model.p_y_[given != true].mean() < 0.3)
    (True, True)
    """

    classes_: np.ndarray
    model_: Any

    def __init__(
        self,
        *,
        loss: Any = "truncated-lq",
        method: Literal["prune", "rounds"] = "prune",
        q: float | Literal["auto"] = "auto",
        k: float | Literal["auto"] = 0.5,
        model: Any = "auto",
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float = 1e-4,
        validation_fraction: float = 0.1,
        features: str = "none",
        tune: bool = False,
        folds: int = 5,
        class_weight: Any = "auto",
        warm_start: bool = False,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.method = method
        self.q = q
        self.k = k
        self.model = model
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.features = features
        self.tune = tune
        self.folds = folds
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> NoisyLabelClassifier:
        """Train on rows X with given labels y, some of them perhaps wrong.

        Rows of one of the `groups` (n,), such as pictures of a patient, are in one fold, and none of them
        validates a model that another has trained.
        """
        if not isinstance(self.tune, bool):  # a word would be taken for yes, "none" too
            raise ValueError(f"tune must be True or False; got {self.tune!r}.")
        go_on = self.warm_start and hasattr(self, "model_")
        ids = frame_ids(X)
        X = self._given(X)
        y = as_numpy(y)
        check_no_missing("y", y, "Leave those rows out, as with X[y.notna()]; `predict` labels them.")
        if not go_on:
            wanted = "none" if self.tune else self.features
            self._extractor = pick_extractor(X, wanted, str(pick_device(self.device)))
        X = self._with_features(X)
        X, y = self._validate(X, y=y, reset=not go_on)
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y must name at least two classes; got one class only, {classes[0]!r}. "
                "There is nothing to tell apart: check the labels."
            )
        if go_on and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"warm_start needs the classes of the last fit, {self.classes_.tolist()}; got "
                f"{classes.tolist()}. Use warm_start=False to start anew."
            )
        sample_weight = self._total_weight(X, labels, classes, sample_weight)
        settings = self._settings()
        if not go_on:
            self._reader = self._fit_reader(X, settings)
        groups = _read_groups(groups, X)
        dataset = self._reader.dataset(X, labels, tuple(map(str, classes)))
        learned = learn(
            replace(dataset, ids=ids, groups=groups),
            replace(settings, standardise=not self._reader.sparse),
            folds=self.folds,
            sample_weight=sample_weight,
            start=self.model_ if go_on and isinstance(self.model_, nn.Module) else None,
            device=self.device,
            progress="auto" if self.verbose else "quiet",
        )
        self.classes_ = classes
        self._keep(learned)
        return self

    def _keep(self, learned: Learned) -> None:
        """Set the attributes that a fit leaves behind."""
        self._predictor = learned.fitted
        if isinstance(learned.fitted, Committee):
            several = len(learned.fitted.fitted) > 1
            self.model_ = learned.fitted if several else next(iter(learned.fitted.fitted.values()))
            self.history_ = []
        else:
            self.model_, self.history_ = learned.fitted.model, learned.fitted.history
        self.tried_ = tuple(learned.tried)
        self.p_y_ = learned.p_y
        self.kept_ = learned.kept
        self.k_ = learned.k
        self.suspects_ = learned.suspects
        self.transition_ = learned.suspects.transition
        rate = learned.suspects.noise_rate
        self.noise_rate_ = rate.estimate
        self.noise_rate_interval_ = (rate.low, rate.high)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of `classes_`, float32 (n, classes)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Log-probabilities of `classes_`, float32 (n, classes)."""
        check_is_fitted(self)
        X = self._validate(self._with_features(self._given(X)), reset=False)
        names = tuple(map(str, self.classes_))
        dataset = self._reader.dataset(X, np.zeros(X.shape[0], np.int64), names)
        if isinstance(self._reader, FrameReader):
            for news in self._reader.news(X):
                warn_caller(f"X: {news}")
        if isinstance(self._predictor, Committee):
            with np.errstate(divide="ignore"):
                return np.log(self._predictor.probs(dataset))
        device = pick_device(self.device)
        return predict_log_proba(self.model_, dataset, self._predictor.preprocess, device=device)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable of `classes_`, (n,)."""
        log_probs = self.predict_log_proba(X)
        return self.classes_[log_probs.argmax(axis=1)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        if is_classifier(self.model):
            own = get_tags(self.model).input_tags
            tags.input_tags.sparse, tags.input_tags.allow_nan = own.sparse, own.allow_nan
        return tags

    def _given(self, X: Any) -> Any:
        """Frames as those of pandas, texts with "" for missing ones; unread for a classifier of one's own."""
        if is_classifier(self.model):
            return X
        X = as_pandas(X)
        return as_texts(X) if are_texts(X) else X

    def _with_features(self, X: Any) -> Any:
        if self._extractor is None:
            return X
        return compute_features(X, self._extractor, str(pick_device(self.device)))

    def _validate(self, X: Any, **options: Any) -> Any:
        reader = None if options.get("reset", True) else self._reader
        if is_classifier(self.model):  # it knows what it takes
            return self._validate_unread(X, **options)
        if isinstance(reader, FrameReader) or (reader is None and must_be_read(X)):
            return self._validate_unread(X, **options)
        X = as_numpy(X)
        if getattr(X, "ndim", 2) not in (3, 4):
            options |= {"accept_sparse": "csr", "dtype": (np.float64, np.float32)}
            if hasattr(X, "columns"):  # of one with gaps in fit they are read, too (`must_be_read`)
                options["ensure_all_finite"] = "allow-nan"
        elif X.dtype == np.uint8:
            options |= {"allow_nd": True, "dtype": np.uint8}
        else:
            raise ValueError(
                f"pictures must be uint8 (n, height, width, channels); got {X.dtype} {tuple(X.shape)}. "
                "Call (255 * X).astype(numpy.uint8) if they lie in 0 .. 1, X.transpose(0, 2, 3, 1) "
                "if the channels come first."
            )
        try:
            return validate_data(self, X, **options)
        except ValueError as error:
            if "contains NaN" in str(error):
                error.add_note(
                    "Here: put an imputer before it, as in make_pipeline(SimpleImputer(), "
                    "NoisyLabelClassifier()), name a model of your own that takes gaps, or give a pandas "
                    "frame, which may have some: pandas.DataFrame(X)."
                )
            if "could not convert string" not in str(error):
                raise
            raise ValueError(
                f"X must hold numbers: {error}. A pandas frame may have columns of words."
            ) from error

    def _validate_unread(self, X: Any, **options: Any) -> Any:
        """Frames and texts unread; of others that they are rows of columns."""
        y = _check_y(options.pop("y")) if "y" in options else None
        if (isinstance(X, list | tuple) or hasattr(X, "iloc")) and not len(X):
            raise ValueError("Found array with 0 sample(s): X must have at least one row.")
        if are_texts(X):
            X = np.asarray(X, object)
        elif hasattr(X, "iloc"):
            validate_data(self, X, skip_check_array=True, **options)
        else:
            options |= {"accept_sparse": "csr", "dtype": None, "ensure_all_finite": False}
            X = validate_data(self, X, **options)
        if y is None:
            return X
        check_consistent_length(X, y)
        return X, y

    def _total_weight(
        self, X: Any, labels: np.ndarray, classes: np.ndarray, sample_weight: Any
    ) -> np.ndarray | None:
        """The weight of each row, times that of its class; None where neither is set."""
        weighs_classes = not (self.class_weight is None or isinstance(self.class_weight, str))
        if sample_weight is None and not weighs_classes:
            return None
        total = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if weighs_classes:
            total = total * compute_sample_weight(self.class_weight, classes[labels])
        left = np.unique(labels[total > 0])
        if len(left) < 2:
            raise ValueError(
                "sample_weight and class_weight must leave at least two classes a weight above 0; "
                f"got {len(left)}."
            )
        return total

    def _fit_reader(self, X: Any, settings: Settings) -> InputReader | FrameReader:
        own = is_classifier(self.model)
        return FrameReader.fit(X, settings) if must_be_read(X) and not own else InputReader.fit(X, own=own)

    def _settings(self) -> Settings:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        named = {name: value for name, value in self.get_params(deep=False).items() if name in _SETTINGS}
        if not isinstance(self.class_weight, str):
            named["class_weight"] = "none"
        pretrained = self._extractor is not None
        settings = Settings(**named, pretrained=pretrained, seed=seed)
        return to_tune(settings, self.features) if self.tune else settings


def _read_groups(groups: Any, X: Any) -> Any:
    """An array with a value for each row of X, or None where the user gave none."""
    if groups is None:
        return None
    groups = as_numpy(groups)
    check_no_missing("groups", groups, "Give a row that belongs to no other a name of its own.")
    groups = check_array(groups, input_name="groups", ensure_2d=False, dtype=None)
    check_consistent_length(X, groups)
    return groups
