/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface between the programs that steer and forward frames (steer.c, tc.c) and their loader
 * (crates/dpdk/src/xdp).
 */
#ifndef MMB_STEER_H
#define MMB_STEER_H

#include <linux/types.h>

/* Maximum number of local addresses of one family. */
#define STEER_LOCAL_MAX 16384

/* In `gate`, above the six bytes of the interface's Ethernet address: steering is on. */
#define STEER_ON (1ULL << 48)

/* Number of secrets of the hash function. */
#define STEER_FAST_SECRETS 12

/* The program's variables: one cache line. `gate` is written as a whole while the program runs, the others
 * before it is attached. */
struct steer_state {
	__u64 gate;
	/* The port's number on the fast path. */
	__u32 port;
	__u32 padding;
	__u32 secrets[STEER_FAST_SECRETS];
};

/* Packets and their bytes, in buffers of one or many segments. */
struct tc_traffic {
	__u64 packets;
	__u64 bytes;
};

/* The variables of the tc programs (tc.c). `engaged` and `twin` are written while they run, the others before
 * they are attached. The programs count in the traffic. */
struct tc_state {
	struct steer_state steer;
	/* Whether the programs act. Otherwise the interface is as without them. */
	__u32 engaged;
	/* The interface of the port. */
	__u32 if_index;
	/* The interface that gets packets to the machine's addresses; 0: the engine gets them. */
	__u32 twin;
	__u32 padding;
	struct tc_traffic to_twin;
	struct tc_traffic from_twin;
	__u32 padding2[4];
};

/* The mark of packets that the tc programs have received again, for the port's socket. */
#define STEER_TC_MARK 0x6d6d6221

/* Slots of the fast path. Slot 0 is the header: `stamp` is the one in force, `last` the heartbeat of the
 * process in nanoseconds of CLOCK_MONOTONIC_COARSE; 0: none yet. */
#define STEER_FAST_SLOTS 131072

/* Nanoseconds after the heartbeat at which the program stops obeying entries. */
#define STEER_FAST_BEAT_MAX 1000000000ULL

/* The index: lanes of a bucket, and buckets. Half of all lanes are free when every slot has a flow. */
#define STEER_FAST_LANES 8
#define STEER_FAST_BUCKETS (2 * STEER_FAST_SLOTS / STEER_FAST_LANES)

/* Maximum number of ports on the fast path. */
#define STEER_FAST_PORTS 64

/* The interface of a port, for tc. */
struct fast_interface {
	__u32 index;
	/* Whether packets may be given to the other end of its veth pair, past the interface itself. */
	__u32 to_peer;
	/* Source address of a frame from that end; 0: none was seen. Written by the program. */
	__u16 peer[4];
};

/* The key of a flow. An IPv4 address is in the first word of its field; the other words are 0. */
struct fast_key {
	__be32 src[4];
	__be32 dst[4];
	/* Source and destination port as in the packet. For echo requests and replies: identifier and
	 * type. */
	__u32 ports;
	/* Ingress port. */
	__u32 port;
	/* Bits 0 to 7: 4 or 6. Bits 8 to 15: the protocol. */
	__u32 kind;
};

/* In `kind`: the key of all packets of a protocol between two addresses. `ports` is 0. */
#define STEER_FAST_PAIR (1 << 16)

/* In a stamp, below the generation: keys are destinations; source, protocol and `ports` are 0. */
#define STEER_FAST_DESTINATION 1
/* In the header's stamp: keys of address pairs exist besides those of flows. */
#define STEER_FAST_PAIRS 2
#define STEER_FAST_STAMP_BITS 2

/* In `flags`: new Ethernet addresses; decrement TTL; translate; track TCP. */
#define STEER_FAST_MAC 1
#define STEER_FAST_TTL 2
#define STEER_FAST_NAT 4
#define STEER_FAST_TRACK 8
/* Forward TCP segments with any flags. Segments with ACK and without SYN, FIN and RST are always
 * forwarded. */
#define STEER_FAST_CONTROL 16
/* With STEER_FAST_TRACK: the first segment must acknowledge `awaits`; segments before it go to the socket. */
#define STEER_FAST_AWAITS 32
/* With STEER_FAST_TRACK: add `add_seq` and `add_ack` to the numbers of TCP segments, and shift their windows.
 * Segments with options other than timestamps go to the socket, since these may have numbers too. */
#define STEER_FAST_NUMBERS 64
/* With STEER_FAST_NUMBERS: add `add_tsval` and `add_tsecr` to timestamps. Segments without them go to the
 * socket. */
#define STEER_FAST_STAMPS 128
/* With STEER_FAST_TRACK: forward the first FIN with an ACK and its retransmissions, and record it. */
#define STEER_FAST_FIN 256

/* An acknowledgement at most this far below the last one was overtaken by it. As in crates/flow/src/track. */
#define STEER_FAST_IN_FLIGHT (1 << 18)

/* In `fin` of a slot: a FIN was forwarded. */
#define STEER_FAST_HAS_FIN (1ULL << 32)

/* The action of a flow. Differences are ones' complement sums of words in memory order. */
struct fast_action {
	/* Generation, shifted by STEER_FAST_STAMP_BITS, and STEER_FAST_DESTINATION. 0: revoked. */
	__u64 stamp;
	__u32 out;
	__u16 flags;
	/* Longest frame without its Ethernet header, in bytes. */
	__u16 max_len;
	/* Changes of the sums that the IPv4 header checksum (with the TTL) and the transport checksum
	 * cover. */
	__u16 l3_diff;
	__u16 l4_diff;
	__be16 sport;
	__be16 dport;
	__u16 mac[6];
	__be32 src[4];
	__be32 dst[4];
	__be32 awaits;
	__u32 add_seq;
	__u32 add_ack;
	__u32 add_tsval;
	__u32 add_tsecr;
	/* Left shift of windows in bits, from -14 to 14. A window that becomes too large is the largest one. */
	__s32 shift_window;
	__u32 padding;
};

/* One slot: three cache lines. */
struct fast_slot {
	struct fast_key key;
	/* Odd while key and action are written; increases with every write. */
	__u32 version;
	struct fast_action action;
	/* Frames and their bytes. */
	__u64 packets;
	__u64 bytes;
	/* Time of the last frame in nanoseconds of CLOCK_MONOTONIC_COARSE. */
	__u64 last;
	/* With STEER_FAST_TRACK: whether a segment was seen, and the last acknowledgement number. */
	__u32 seen;
	__u32 ack;
	/* Whether a segment with RST was forwarded. Written last. */
	__u32 rst;
	__u32 padding2;
	/* STEER_FAST_HAS_FIN: a segment with FIN was forwarded. Written last. With STEER_FAST_FIN, it is written
	 * before its segment is counted, and the lower half is the sequence number behind the FIN. */
	__u64 fin;
};

/* One bucket of the index: a cache line. A lane is 0, or holds the upper half of a key's hash and, in its
 * lower half, a slot number. */
struct fast_bucket {
	__u64 lanes[STEER_FAST_LANES];
};

/* The multiplier of the hash function: odd, and below 2^63 so that Rust sees a positive number. */
#define STEER_FAST_MIX 0x1e3779b97f4a7c15ULL

#endif
