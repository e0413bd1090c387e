/* SPDX-License-Identifier: Apache-2.0
 *
 * What the XDP program (steer.c, fast.h) and who loads it and feeds it (crates/dpdk/src/xdp.rs, fast.rs) must agree on.
 */
#ifndef MMB_STEER_H
#define MMB_STEER_H

#include <linux/types.h>

/* Addresses of one family that can be the kernel's, at most. */
#define STEER_LOCAL_MAX 16384

/* In `gate`, above the six bytes of the interface's address: steering is on. */
#define STEER_ON (1ULL << 48)

/* Numbers that a flow's mix is keyed with. */
#define STEER_FAST_SECRETS 12

/* The program's variables, a cache line. `gate` is written as a whole while the program runs, the others before it is attached. */
struct steer_state {
	__u64 gate;
	/* The port's number in the maps of the fast path. */
	__u32 port;
	__u32 unused;
	__u32 secrets[STEER_FAST_SECRETS];
};

/* Places for flows on the fast path; of place 0 only the stamp counts, which is the one in force. */
#define STEER_FAST_SLOTS 131072

/* The index: buckets of so many lanes; half of all lanes are free when every place has a flow. */
#define STEER_FAST_LANES 8
#define STEER_FAST_BUCKETS (2 * STEER_FAST_SLOTS / STEER_FAST_LANES)

/* Ports on it at a time, at most. */
#define STEER_FAST_PORTS 64

/* What names a flow, in words. IPv4 addresses are in the first word, the others 0. */
struct fast_key {
	__be32 src[4];
	__be32 dst[4];
	/* Source and destination port as in the packet. Echo requests and replies have their identifier for a source port, and
	 * their type for a destination port. */
	__u32 ports;
	/* Where it comes in. */
	__u32 port;
	/* 4 or 6, and above it, by 8 bits, the protocol. */
	__u32 kind;
};

/* In `kind`: all packets of that protocol between the two addresses. `ports` is 0. */
#define STEER_FAST_PAIR (1 << 16)

/* In a stamp, below the generation: keys are those of destinations, in which source, protocol and `ports` are 0. */
#define STEER_FAST_DESTINATION 1
/* In the header's: there are keys of pairs besides those of flows. */
#define STEER_FAST_PAIRS 2
#define STEER_FAST_STAMP_BITS 2

/* In `flags`. */
#define STEER_FAST_MAC 1
#define STEER_FAST_TTL 2
#define STEER_FAST_NAT 4
#define STEER_FAST_TRACK 8
/* TCP with any flags goes on; or with FIN and ACK, besides what always does: ACK without SYN, FIN, RST. */
#define STEER_FAST_CONTROL 16
#define STEER_FAST_FIN 32
/* With STEER_FAST_TRACK: the first segment is one that acknowledges `awaits`, and others are mmb's until it has come. */
#define STEER_FAST_AWAITS 64

/* What is done with the packets of a flow. Sums and differences are ones' complement sums of words as they are in memory. */
struct fast_action {
	/* The generation that it belongs to, by STEER_FAST_STAMP_BITS, and whether its key is a destination's. 0: it holds no
	 * more. */
	__u64 stamp;
	__u32 out;
	__u16 flags;
	/* Longest that goes behind an Ethernet header, in bytes. */
	__u16 max_len;
	/* What changes in what the checksums of the IPv4 and of the transport header cover, TTL included. */
	__u16 l3_diff;
	__u16 l4_diff;
	__be16 sport;
	__be16 dport;
	__u16 mac[6];
	__be32 src[4];
	__be32 dst[4];
	__be32 awaits;
};

/* One place: three cache lines. */
struct fast_slot {
	struct fast_key key;
	/* Odd while key and action are being written, another each time they have been. */
	__u32 version;
	struct fast_action action;
	__u64 unused;
	/* Frames and their bytes. */
	__u64 packets;
	__u64 bytes;
	/* When the last one was, on the clock CLOCK_MONOTONIC_COARSE, in nanoseconds. */
	__u64 last;
	/* With STEER_FAST_TRACK: whether there was a segment, the number behind the furthest byte of this direction (FIN counts
	 * as one), and the furthest acknowledgement with its window. */
	__u32 seen;
	__u32 end;
	__u32 ack;
	__u32 window;
	/* Whether there was such a segment of TCP. Written last. */
	__u32 fin;
	__u32 rst;
	__u64 unused2[2];
};

/* One bucket of the index: a cache line. A lane is 0, or the upper half of a flow's mix and, in its lower half, the flow's
 * place. */
struct fast_bucket {
	__u64 lanes[STEER_FAST_LANES];
};

/* A number without meaning, odd; with the highest bit it would be a negative one to Rust. */
#define STEER_FAST_MIX 0x1e3779b97f4a7c15ULL

#endif
