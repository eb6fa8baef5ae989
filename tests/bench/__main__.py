"""``make bench``: every measurement, one after the other, on one real control plane where one is needed."""

from __future__ import annotations

import asyncio
import os
import sys

from tests.bench import (
    agent_memory,
    claims,
    creates,
    image_pull,
    operator,
    passes,
    polls,
    reflector,
    simulator,
    startup,
    store,
    vm_starts,
    webhooks,
)
from tests.support.control_plane import RealControlPlane


def main() -> int:
    print(f"load average at the start: {os.getloadavg()[0]:.1f}")
    met = [simulator.measure(), passes.compare()]
    met += [part.main() == 0 for part in (claims, polls, webhooks, startup, image_pull)]
    with RealControlPlane() as plane:
        kubeconfig = plane.access.kubeconfig
        met.append(reflector.compare(kubeconfig, reflector.PODS))
        met.append(creates.compare(kubeconfig))
        met.append(operator.compare(kubeconfig))
        met.append(asyncio.run(vm_starts.compare(plane)))
        print(asyncio.run(agent_memory.measure(plane)))
        for line in asyncio.run(store.measure(kubeconfig)):
            print(line)
    print("bench: every target met" if all(met) else "bench: a target was missed")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
