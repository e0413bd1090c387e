/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions for the bindings: DPDK's inline functions, which bindings cannot call, and corrections of its
 * drivers. A call handles a whole vector of packets wherever possible.
 */
#ifndef MMB_SHIM_H
#define MMB_SHIM_H

#include <stdint.h>

#include <rte_config.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_graph.h>
#include <rte_graph_worker.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_thread.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>

#include "steer.h"

/* rte_errno, a thread-local variable of EAL. */
int mmb_errno(void);
unsigned mmb_lcore_id(void);
uint64_t mmb_rdtsc(void);
int mmb_iova_is_va(void);

/* Loads the shared libraries that drivers need, see libraries.c. */
void mmb_libraries_load(void);
/* A function of libxdp that the shim has one of the same name for. */
void *mmb_libraries_xdp(const char *name);
/* Runs DPDK's constructors once, see constructors.c. Called by mmb_log_install. */
void mmb_constructors_run(void);

/* Prepares DPDK for its start, and sends the messages of DPDK, libbpf and libxdp to `sink`, on the thread
 * that emits them. Levels are DPDK's. */
typedef void (*mmb_log_sink)(uint32_t level, const char *text, size_t len);
void mmb_log_install(mmb_log_sink sink);

/* Resolves libxdp's functions for xsk.c; called by mmb_log_install. */
void mmb_xsk_install(void);
/* The error number (positive) of this thread's last failed AF_XDP registration or socket; or 0. Resets it. */
int mmb_xsk_take_error(void);
/* The descriptor of the last AF_XDP socket that this thread made; or -1. Resets it. The driver owns the
 * socket. */
int mmb_xsk_take_socket(void);

/* The socket of an AF_XDP or AF_PACKET port whose send ring may have frames since this thread has sent by it
 * last; or -1. Resets it. An AF_PACKET port has none if the kernel has taken `given` bytes since the last
 * call. The driver owns the socket. See tx.c. */
int mmb_tx_take_left(size_t given);
/* Offers the frames in the send ring of a socket to the kernel. Returns whether it may have left some. */
int mmb_tx_offer(int fd);

/* Hardware flow rules, see flow.c. Network byte order; an IPv4 address is in the first four bytes. */
struct rte_flow;
struct mmb_flow_ends {
	uint8_t source[16];
	uint8_t destination[16];
	uint16_t source_port;
	uint16_t destination_port;
};
static const uint32_t MMB_FLOW_PASSTHRU = 0, MMB_FLOW_QUEUE = 1, MMB_FLOW_RSS = 2, MMB_FLOW_DROP = 3;
#define MMB_FLOW_QUEUES 64
struct mmb_flow_rule {
	struct mmb_flow_ends value;
	/* Bits of `value` that must match. */
	struct mmb_flow_ends mask;
	/* 4 or 6; 6 (TCP) or 17 (UDP). */
	uint8_t ip;
	uint8_t proto;
	uint8_t marks;
	uint8_t counts;
	uint32_t mark;
	/* 0 is the highest. */
	uint32_t priority;
	/* MMB_FLOW_PASSTHRU …; QUEUE means queue 0, RSS the first `queues` queues. */
	uint32_t fate;
	uint32_t queues;
};
struct mmb_flow_error {
	/* An rte_flow_error_type. */
	int32_t type;
	char message[124];
};
/* 0, or a negative error number. */
int mmb_flow_validate(uint16_t port, const struct mmb_flow_rule *rule, struct mmb_flow_error *result);
/* NULL on failure; then mmb_errno is set. */
struct rte_flow *mmb_flow_create(uint16_t port, const struct mmb_flow_rule *rule, struct mmb_flow_error *result);
int mmb_flow_destroy(uint16_t port, struct rte_flow *flow, struct mmb_flow_error *result);
/* Number of packets that a counting rule has matched. */
int mmb_flow_count(uint16_t port, struct rte_flow *flow, uint64_t *packets, struct mmb_flow_error *result);
/* Negotiates the delivery of marks, before a port is configured. 1: it delivers them; 0: it does not;
 * -ENOTSUP: the driver needs no negotiation. */
int mmb_flow_negotiate_marks(uint16_t port);

/* Packet buffers. */
struct rte_mbuf *mmb_pktmbuf_alloc(struct rte_mempool *pool);
int mmb_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **pkts, unsigned n);
void mmb_pktmbuf_free(struct rte_mbuf *pkt);
void mmb_pktmbuf_free_bulk(struct rte_mbuf **pkts, unsigned n);
void mmb_pktmbuf_free_seg(struct rte_mbuf *seg);
unsigned mmb_mempool_available(const struct rte_mempool *pool);
unsigned mmb_mempool_in_ring(const struct rte_mempool *pool);

/* Ports. */
uint16_t mmb_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n);
uint16_t mmb_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n);

/* Values whose macros bindgen cannot evaluate. */
static const uint64_t MMB_RX_SCATTER = RTE_ETH_RX_OFFLOAD_SCATTER;
static const uint64_t MMB_RX_RSS_HASH = RTE_ETH_RX_OFFLOAD_RSS_HASH;
static const uint64_t MMB_TX_MULTI_SEGS = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
static const uint64_t MMB_RSS_FLOWS = RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP;

/* Rings. */
unsigned mmb_ring_enqueue_burst(struct rte_ring *ring, void *const *objs, unsigned n);
unsigned mmb_ring_dequeue_burst(struct rte_ring *ring, void **objs, unsigned n);
unsigned mmb_ring_count(const struct rte_ring *ring);

/* Graph. */
void mmb_graph_walk(struct rte_graph *graph);
void mmb_node_move_all(struct rte_graph *graph, struct rte_node *node, uint16_t edge);
void mmb_node_enqueue(struct rte_graph *graph, struct rte_node *node, uint16_t edge, void **objs, uint16_t n);
/* Enqueues objs[i] to edges[i]; packets of an edge stay in order. Moves the stream without a copy if all
 * edges are equal and `whole` is set: objs is the node's whole stream. n > 0. */
void mmb_node_enqueue_next(struct rte_graph *graph, struct rte_node *node, const uint16_t *edges, void **objs,
			   uint16_t n, int whole);
void **mmb_node_stream_get(struct rte_graph *graph, struct rte_node *node, uint16_t edge, uint16_t n);
void mmb_node_stream_put(struct rte_graph *graph, struct rte_node *node, uint16_t edge, uint16_t n);

#endif
