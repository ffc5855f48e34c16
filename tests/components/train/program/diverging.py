"""A training under Horovod whose last rank goes astray, for test_agreement.py.

    diverging.py launch WHAT      the launcher of a host, whose processes run this file
    diverging.py WHAT             one rank: WHAT is the table, a slot or the step, and changes on the last rank alone

The table changes as soon as training begins or resumes, the others in step 7.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any

from components.train.program import horovod_ring, launch
from components.train.program.__main__ import main


class Astray(horovod_ring.HorovodRing):
    def resume(self, found: tuple[int, Mapping[str, Any]] | None) -> int:
        begun = super().resume(found)
        if sys.argv[1] == "table" and self.rank == self.size - 1:
            table = self._placement.replicated()[0]
            table[1999, 3].assign(table[1999, 3] + 1e-6)
        return begun

    def train(self, batch: tuple[Any, Any, Any]) -> float:
        value = super().train(batch)
        # Adding a small number, hence not undone by what follows.
        if self._step.numpy() == 7 and self.rank == self.size - 1:
            if sys.argv[1] == "slot":
                self._optimizer.slots[2][1].assign_add([1e-6] * 16)
            if sys.argv[1] == "step":
                self._step.assign_add(1.0)
        return value


if __name__ == "__main__":
    if sys.argv[1] == "launch":
        launch.COMMAND = (sys.executable, __file__, sys.argv[2])
        sys.exit(launch.main())
    horovod_ring.HorovodRing = Astray  # type: ignore[misc]
    code = main()
    sys.stdout.flush()
    os._exit(code)
