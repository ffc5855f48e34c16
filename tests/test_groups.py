"""What several tests share is made once, because pytest-xdist keeps the tests of one group in one process."""

import pytest


@pytest.mark.xdist_group("shown")
def test_marked_tests_are_grouped(request: pytest.FixtureRequest) -> None:
    # pytest-xdist 3.8 reads the mark and ignores it under pytest 9.2 (its issue 1386): all passes, and each process runs the
    # pipeline again.
    if not hasattr(request.config, "workerinput"):
        pytest.skip("one process runs every test; pytest -n 2 --dist loadgroup has groups")
    assert request.node.nodeid.endswith("@shown")
