"""A simulated federation's computing on a Ray cluster (extra `consilia[ray]`).

Belongs here: starting or joining a cluster, what crosses to its workers, handing out tasks and doing lost ones again. Does not:
booking, sealing, ledgers, protocol: they stay with the sites, in the process that runs the plan. Ray serialises with pickle, by
design: whoever can talk to the cluster runs code on it. One trust domain only; never between institutions.
"""

import os

# Ray reads these when it is first imported.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing about a run is told to anybody
# A cluster of our own listens on loopback only. The name tells what it was made for; it says that this machine is alone.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
# Ray lets its workers step back behind all else on the machine; on a busy one rounds would miss their deadlines.
os.environ.setdefault("RAY_worker_niceness", "0")
# What Ray has to say about lost workers would go to stdout, amid a command's JSON; `Crew` says it in a sentence.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
