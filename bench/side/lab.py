"""Makes the laboratory of the end-to-end tests (namespaces, links, servers) available as `lab`."""

import sys

from .results import ROOT

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
