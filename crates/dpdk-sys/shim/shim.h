/* SPDX-License-Identifier: Apache-2.0
 *
 * DPDK's fast path is made of inline functions, which bindings cannot call. Each function here calls one of
 * them, once per vector of packets wherever that is possible. Nothing here keeps state.
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

/* Errors: rte_errno is a thread-local variable of EAL. */
int mmb_errno(void);
unsigned mmb_lcore_id(void);
uint64_t mmb_rdtsc(void);
int mmb_iova_is_va(void);

/* Sends the messages of DPDK, libbpf and libxdp to `sink`, on the thread that writes them. Levels are DPDK's. */
typedef void (*mmb_log_sink)(uint32_t level, const char *text, size_t len);
void mmb_log_install(mmb_log_sink sink);

/* See xsk.c; called by mmb_log_install. */
void mmb_xsk_install(void);
/* Why this thread's last AF_XDP registration or socket could not be made (a positive error number), once; or 0. */
int mmb_xsk_take_error(void);
/* The descriptor of the last AF_XDP socket that this thread made, once; or -1. The socket stays its maker's. */
int mmb_xsk_take_socket(void);

/* Has a started tap port send frames for that MTU, which its interface has by now. See tap.c. */
int mmb_tap_follow_mtu(uint16_t port, uint16_t mtu);

/* Flow rules, see flow.c. Addresses and ports as on the wire; an IPv4 address stands in the first four bytes. */
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
	/* Bits that count. */
	struct mmb_flow_ends mask;
	/* 4 or 6; 6 (TCP) or 17 (UDP). */
	uint8_t ip;
	uint8_t proto;
	uint8_t marks;
	uint8_t counts;
	uint32_t mark;
	/* 0 comes first. */
	uint32_t priority;
	/* One of the above: what becomes of the packet; to queue 0, spread over the first so many queues, … */
	uint32_t fate;
	uint32_t queues;
};
struct mmb_flow_error {
	/* An rte_flow_error_type. */
	int32_t type;
	char message[124];
};
/* 0, or a negative error number. */
int mmb_flow_validate(uint16_t port, const struct mmb_flow_rule *rule, struct mmb_flow_error *told);
/* NULL: see mmb_errno. */
struct rte_flow *mmb_flow_create(uint16_t port, const struct mmb_flow_rule *rule, struct mmb_flow_error *told);
int mmb_flow_destroy(uint16_t port, struct rte_flow *flow, struct mmb_flow_error *told);
/* Packets that a rule has matched that counts. */
int mmb_flow_count(uint16_t port, struct rte_flow *flow, uint64_t *packets, struct mmb_flow_error *told);
/* Before a port is configured: has it deliver marks. 1: it will, 0: it will not, -ENOTSUP: it need not be asked. */
int mmb_flow_ask_for_marks(uint16_t port);

/* Packet buffers. */
struct rte_mbuf *mmb_pktmbuf_alloc(struct rte_mempool *pool);
int mmb_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **pkts, unsigned n);
void mmb_pktmbuf_free(struct rte_mbuf *pkt);
void mmb_pktmbuf_free_bulk(struct rte_mbuf **pkts, unsigned n);
void mmb_pktmbuf_free_seg(struct rte_mbuf *seg);
unsigned mmb_mempool_in_use(const struct rte_mempool *pool);

/* Ports. */
uint16_t mmb_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n);
uint16_t mmb_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n);

/* Flags whose macros the bindings cannot read. */
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
/* Passes objs[i] on to edges[i], packets of one edge in order; without a copy when all edges are equal and `whole` says
 * that objs is the node's whole stream. n is not 0. */
void mmb_node_enqueue_next(struct rte_graph *graph, struct rte_node *node, const uint16_t *edges, void **objs,
			   uint16_t n, int whole);
void **mmb_node_stream_get(struct rte_graph *graph, struct rte_node *node, uint16_t edge, uint16_t n);
void mmb_node_stream_put(struct rte_graph *graph, struct rte_node *node, uint16_t edge, uint16_t n);

#endif
