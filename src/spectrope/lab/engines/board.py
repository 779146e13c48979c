"""What the workers of a cluster and the process that waits for them tell each other.

The process of a cluster that holds it loads neither torch nor the models.
"""

from spectrope.core import Progress


class Board:
    """Actor on the cluster to which workers report progress and from which they read stop requests."""

    def __init__(self) -> None:
        self.reports: list[Progress] = []
        self.stopping = False

    def tell(self, progress: Progress) -> None:
        """Report the progress of a job."""
        self.reports.append(progress)

    def take(self) -> list[Progress]:
        """Return the reports since the last call, and clear them."""
        taken, self.reports = self.reports, []
        return taken

    def stop(self) -> None:
        """Request that all jobs stop at their next safe point."""
        self.stopping = True

    def is_stopping(self) -> bool:
        """Whether a stop has been requested."""
        return self.stopping
