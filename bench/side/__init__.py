"""The papers' experiments, mmb and its peers side by side.

An experiment is a list of *series* (mmb, nftables, …), each measured at several places of its x axis. Measurements of one
experiment are taken in turn, round by round, so that what the machine does meanwhile happens to all of them; what is
reported is the median of the rounds, with the lowest and the highest. There are two kinds, never in one figure:

memory      clock ticks (TSC) a packet on one core, frames made in memory: `mmb bench`, the kernel's own test run of XDP
            programs, which can hand its frames to the network stack as well, and DPDK programs over in-memory ports;
end to end  goodput, requests and round trips of real clients and servers in network namespaces, over veth.
"""
