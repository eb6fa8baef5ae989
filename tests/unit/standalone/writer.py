"""
A process that writes into a durable store until it is killed, and says each write that was acknowledged.

    python writer.py DIRECTORY WRITERS

Prints ``NAME NUMBER VERSION`` per acknowledged write, to a pipe, unbuffered.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from remuda.standalone.journal import Journal
from remuda.standalone.kinds import BUILT_IN
from remuda.standalone.store import Store

CONFIG = next(kind for kind in BUILT_IN if kind.plural == "configmaps")


async def write_on(store: Store, name: str) -> None:
    known = store.get(CONFIG, "herd", name)
    number = int(known["data"]["n"]) if known else 0
    while True:
        number += 1
        meta = {"name": name, "namespace": "herd"}
        stored = store.put(CONFIG, {"metadata": meta, "data": {"n": str(number)}})
        await store.settled()
        os.write(1, f"{name} {number} {stored['metadata']['resourceVersion']}\n".encode())


async def main(directory: Path, writers: int) -> None:
    store = Store(Journal(directory, history_max=100_000), history_max=100_000)
    async with asyncio.TaskGroup() as group:
        for at in range(writers):
            group.create_task(write_on(store, f"writer-{at}"))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
