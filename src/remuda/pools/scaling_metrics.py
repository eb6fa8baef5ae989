"""What the autoscaler saw and made of it, per pool. Signals are published one by one: a sum hides what is starving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from remuda.pools.decide.siblings import Wanted
    from remuda.ports.dispatch import Signals

SIGNALS: Final = ("queued", "claimed", "occupied", "withheld", "p95_concurrent_last_hour")
DIRECTIONS: Final = ("up", "down")


class ScalingMetrics:
    """The autoscaler's series. They are there for autoscaled pools only."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, what: str, *labels: str) -> Gauge:
            return Gauge(f"remuda_pool_{name}", what, ["pool", *labels], registry=registry)

        self._known = gauge("demand_known", "1 if dispatch told what waits, 0 if replicas are held")
        self._signal = gauge("signal", "What dispatch last told, one by one", "signal")
        self._oldest = gauge("oldest_queued_age_seconds", "How long the oldest job has waited")
        self._floor = gauge("autoscaler_floor", "The minWarm in force")
        self._load = gauge("autoscaler_load", "Runners that jobs need now")
        self._target = gauge("autoscaler_target", "Runners wanted if the pool were alone")
        self._allocated = gauge("autoscaler_allocated", "Runners granted next to its siblings")
        self._scales = Counter(
            "remuda_pool_scales",
            "Changes of spec.replicas by the autoscaler",
            ["pool", "direction"],
            registry=registry,
        )
        self._all: tuple[Gauge | Counter, ...] = (
            *(self._known, self._signal, self._oldest, self._floor, self._load),
            *(self._target, self._allocated, self._scales),
        )

    def demand(self, pool: str, signals: Signals | None) -> None:
        """Publish what dispatch told. Unknown demand leaves the last numbers and says that they are old."""
        self._introduce(pool)
        self._known.labels(pool).set(0 if signals is None else 1)
        if signals is None:
            return
        for name in SIGNALS:
            self._signal.labels(pool, name).set(getattr(signals, name))
        self._oldest.labels(pool).set(signals.oldest_queued_s)

    def wanted(self, pool: str, wanted: Wanted) -> None:
        if wanted.replicas is None:
            return
        self._floor.labels(pool).set(wanted.floor)
        self._load.labels(pool).set(wanted.load)
        self._target.labels(pool).set(wanted.target)
        self._allocated.labels(pool).set(wanted.replicas)

    def scaled(self, pool: str, direction: str) -> None:
        assert direction in DIRECTIONS
        self._scales.labels(pool, direction).inc()

    def _introduce(self, pool: str) -> None:
        """Write every series as 0 that is not there yet. What is there stays as it is."""
        for metric in (self._oldest, self._floor, self._load, self._target, self._allocated):
            metric.labels(pool)
        for name in SIGNALS:
            self._signal.labels(pool, name)
        for direction in DIRECTIONS:
            self._scales.labels(pool, direction)

    def forget(self, pool: str) -> None:
        """Drop a pool's series: it is gone, or no longer autoscaled."""
        for metric in self._all:
            metric.remove_by_labels({"pool": pool})
