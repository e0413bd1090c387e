/* SPDX-License-Identifier: Apache-2.0 */
#include "shim.h"

int mmb_errno(void)
{
	return rte_errno;
}

unsigned mmb_lcore_id(void)
{
	return rte_lcore_id();
}

uint64_t mmb_rdtsc(void)
{
	return rte_rdtsc();
}

int mmb_iova_is_va(void)
{
	return rte_eal_iova_mode() == RTE_IOVA_VA;
}

struct rte_mbuf *mmb_pktmbuf_alloc(struct rte_mempool *pool)
{
	return rte_pktmbuf_alloc(pool);
}

int mmb_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **pkts, unsigned n)
{
	return rte_pktmbuf_alloc_bulk(pool, pkts, n);
}

void mmb_pktmbuf_free(struct rte_mbuf *pkt)
{
	rte_pktmbuf_free(pkt);
}

void mmb_pktmbuf_free_bulk(struct rte_mbuf **pkts, unsigned n)
{
	rte_pktmbuf_free_bulk(pkts, n);
}

void mmb_pktmbuf_free_seg(struct rte_mbuf *seg)
{
	rte_pktmbuf_free_seg(seg);
}

unsigned mmb_mempool_available(const struct rte_mempool *pool)
{
	return rte_mempool_avail_count(pool);
}

unsigned mmb_mempool_in_ring(const struct rte_mempool *pool)
{
	return rte_mempool_ops_get_count(pool);
}

uint16_t mmb_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n)
{
	return rte_eth_rx_burst(port, queue, pkts, n);
}

uint16_t mmb_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n)
{
	return rte_eth_tx_burst(port, queue, pkts, n);
}

unsigned mmb_ring_enqueue_burst(struct rte_ring *ring, void *const *objs, unsigned n)
{
	return rte_ring_enqueue_burst(ring, objs, n, NULL);
}

unsigned mmb_ring_dequeue_burst(struct rte_ring *ring, void **objs, unsigned n)
{
	return rte_ring_dequeue_burst(ring, objs, n, NULL);
}

unsigned mmb_ring_count(const struct rte_ring *ring)
{
	return rte_ring_count(ring);
}

void mmb_graph_walk(struct rte_graph *graph)
{
	rte_graph_walk(graph);
}

void mmb_node_move_all(struct rte_graph *graph, struct rte_node *node, uint16_t edge)
{
	rte_node_next_stream_move(graph, node, edge);
}

void mmb_node_enqueue(struct rte_graph *graph, struct rte_node *node, uint16_t edge, void **objs, uint16_t n)
{
	rte_node_enqueue(graph, node, edge, objs, n);
}

/* Enqueues each run of equal edges with one copy. */
static void enqueue_runs(struct rte_graph *graph, struct rte_node *node, const uint16_t *edges, void **objs,
			 uint16_t n)
{
	uint16_t from = 0, i;

	for (i = 1; i < n; i++) {
		if (edges[i] == edges[from])
			continue;
		rte_node_enqueue(graph, node, edges[from], objs + from, i - from);
		from = i;
	}
	rte_node_enqueue(graph, node, edges[from], objs + from, n - from);
}

/* Walks all packets once for each edge that occurs, without a branch on the packet. */
static void enqueue_by_edge(struct rte_graph *graph, struct rte_node *node, uint64_t used, const uint16_t *edges,
			    void **objs, uint16_t n)
{
	for (; used != 0; used &= used - 1) {
		const uint16_t edge = rte_bsf64(used);
		void **to = rte_node_next_stream_get(graph, node, edge, n);
		uint16_t count = 0, i;

		for (i = 0; i < n; i++) {
			to[count] = objs[i];
			count += edges[i] == edge;
		}
		rte_node_next_stream_put(graph, node, edge, count);
	}
}

void mmb_node_enqueue_next(struct rte_graph *graph, struct rte_node *node, const uint16_t *edges, void **objs,
			   uint16_t n, int whole)
{
	uint16_t changes = 0, i;
	uint64_t used = 0;

	for (i = 1; i < n; i++)
		changes += edges[i] != edges[i - 1];
	if (likely(changes == 0)) {
		if (likely(whole))
			rte_node_next_stream_move(graph, node, edges[0]);
		else
			rte_node_enqueue(graph, node, edges[0], objs, n);
		return;
	}
	/* A run costs about as much as walking 16 packets. An edge without a bit of its own sets all 64
	 * bits; then runs are always chosen, since there are fewer changes than packets. */
	for (i = 0; i < n; i++)
		used |= edges[i] < 64 ? 1ULL << edges[i] : UINT64_MAX;
	if (changes * 16 < n * __builtin_popcountll(used))
		enqueue_runs(graph, node, edges, objs, n);
	else
		enqueue_by_edge(graph, node, used, edges, objs, n);
}

void **mmb_node_stream_get(struct rte_graph *graph, struct rte_node *node, uint16_t edge, uint16_t n)
{
	return rte_node_next_stream_get(graph, node, edge, n);
}

void mmb_node_stream_put(struct rte_graph *graph, struct rte_node *node, uint16_t edge, uint16_t n)
{
	rte_node_next_stream_put(graph, node, edge, n);
}
