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

/* The program's variables. `gate` is written as a whole while the program runs, `port` before it is attached. */
struct steer_state {
	__u64 gate;
	/* The port's number in the maps of the fast path. */
	__u32 port;
	__u32 unused;
};

/* Places for flows on the fast path; place 0 holds only the generation in force. */
#define STEER_FAST_SLOTS 65536

/* Ports on it at a time, at most. */
#define STEER_FAST_PORTS 64

/* What names a flow. IPv4 addresses are in the first word, the others 0. Echo requests and replies have their identifier
 * for a source port, and their type for a destination port. */
struct fast_key {
	__be32 src[4];
	__be32 dst[4];
	__be16 sport;
	__be16 dport;
	__u32 port;
	__u8 family;
	__u8 proto;
	__u16 zero;
};

/* In `flags`. */
#define STEER_FAST_MAC 1
#define STEER_FAST_TTL 2
#define STEER_FAST_NAT 4
#define STEER_FAST_TRACK 8

/* What is done with the packets of a flow. Sums and differences are ones' complement sums of words as they are in memory. */
struct fast_action {
	/* The generation that it belongs to. 0: it holds no more. */
	__u64 stamp;
	/* Of the key that it is for (fast_mark). */
	__u64 mark;
	/* Odd while it is being written, another each time it has been. */
	__u32 version;
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
};

/* One place. */
struct fast_slot {
	struct fast_action action;
	/* Frames and their bytes. */
	__u64 packets;
	__u64 bytes;
	/* When the last one was, on the clock CLOCK_MONOTONIC_COARSE, in nanoseconds. */
	__u64 last;
	/* With STEER_FAST_TRACK: whether there was a segment, the number behind the furthest byte of this direction, and the
	 * furthest acknowledgement with its window. */
	__u32 seen;
	__u32 end;
	__u32 ack;
	__u32 window;
	__u64 unused;
};

/* Numbers without meaning, all odd; with the highest bit they would be negative ones to Rust. */
#define STEER_FAST_MIX0 0x1e3779b97f4a7c15ULL
#define STEER_FAST_MIX1 0x42b2ae3d27d4eb4fULL
#define STEER_FAST_MIX2 0x165667b19e3779f9ULL
#define STEER_FAST_MIX3 0x56e8feb86659fd93ULL
#define STEER_FAST_MIX4 0x20761d6478bd642fULL
#define STEER_FAST_MIX5 0x67037ed1a0b428dbULL

#endif
