"""Fixtures: a namespace with brokers and servers."""

import pytest

from brokers.servers import Site


@pytest.fixture
def site(root, make_daemon, request):
    """A site whose functions run in the daemon, or in the domain that BOTH_PLACES names."""
    made = Site(make_daemon, getattr(request, "param", None))
    yield made
    made.close()
