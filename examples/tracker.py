"""A tracker in five lines: the loop tells callbacks of its start, of every epoch and of its end."""

from tolerant import data, noise
from tolerant.train import Callback, PruneSchedule, Recipe, train


class Track(Callback):
    """Works with `mlflow` as it is; for W&B: `client.log(record, step=record["epoch"])`."""

    def __init__(self, client):
        self.client = client

    def on_epoch_end(self, job, record):
        numbers = {name: value for name, value in record.items() if isinstance(value, int | float)}
        self.client.log_metrics(numbers, step=record["epoch"])


def main(client, epochs=20):
    digits = data.load("digits")
    drawn = noise.corrupt(digits.true_labels, noise.symmetric(10, 0.4), seed=0)
    return train(
        digits.with_given_labels(drawn.given_labels),
        model="mlp",
        loss="lq",
        recipe=Recipe(epochs=epochs, batch_size=64, lr=0.3, milestones=(), augment="none"),
        prune=PruneSchedule(start_epoch=epochs // 2, every=2, k=0.3),
        callbacks=[Track(client)],
        progress="quiet",
    )


if __name__ == "__main__":
    import mlflow

    with mlflow.start_run():
        print(main(mlflow))
