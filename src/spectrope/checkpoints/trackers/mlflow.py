"""MLflow, in a folder unless the address of a tracking server is given."""

import os
import time
from collections.abc import Mapping

from spectrope.checkpoints.trackers.base import Tracker, client


class MLflow(Tracker, name="mlflow"):
    """A run of MLflow; without an address it lies in a folder that `mlflow ui --backend-store-uri` shows."""

    def open(self) -> None:
        """Begin a run."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        mlflow = client("mlflow", "mlflow-skinny")
        place = self.url or (self.folder / "mlruns").resolve().as_uri()
        self.api = mlflow.MlflowClient(tracking_uri=place)
        known = self.api.get_experiment_by_name(self.project)
        experiment = self.api.create_experiment(self.project) if known is None else known.experiment_id
        self.id = self.api.create_run(experiment, run_name=self.run).info.run_id
        for name, value in self.config.items():
            self.api.log_param(self.id, name, value)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Numbers of one step, in one request."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self.api.log_batch(self.id, [Metric(name, value, now, step) for name, value in values.items()])

    def close(self) -> None:
        """End the run."""
        self.api.set_terminated(self.id)
