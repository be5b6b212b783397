"""A run as a job of an NVFlare 2.9 fleet that is there already (extra `consilia[nvflare]`).

NVFlare starts the processes, knows its members and carries our frames; of these it sees what any transport sees. The rest is as
ever: keys, roster, policy and ledger lie in a folder of each member, and only code that is installed there runs.

Belongs here: the two components that NVFlare loads, what they share, the folder of a job. Does not: rules of rounds or consent.
"""
