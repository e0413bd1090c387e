/* DPDK's nodes ip4_lookup and ip4_rewrite (librte_node) between a source of generated frames and a null port,
 * behind a few functions without pointers. One process, one thread, one graph.
 *
 * As in examples/l3fwd-graph, the guide's program for these nodes: the table is theirs (rte_lpm, 1,024
 * routes), next hops are set with rte_node_ip4_rewrite_add, ticks are those that rte_graph counts for each
 * node. Vectors of 256. */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_graph.h>
#include <rte_graph_worker.h>
#include <rte_mbuf.h>
#include <rte_node_eth_api.h>
#include <rte_node_ip4_api.h>

#define VECTOR RTE_GRAPH_BURST_SIZE
#define BUFFERS 8191
#define ROOM 128
/* More than librte_node asks for. */
#define PRIVATE 64

struct frame {
	uint32_t length;
	uint8_t bytes[ROOM];
};

static struct rte_mempool *pool;
static struct rte_graph *graph;
static struct frame (*next_frame)(void);

/* Starts DPDK with `megabytes` of memory, in huge pages or ordinary ones. */
int peer_start(uint32_t megabytes, uint32_t huge)
{
	char memory[16];
	snprintf(memory, sizeof(memory), "%u", megabytes);
	char *arguments[] = {"route", huge ? "--in-memory" : "--no-huge", "--no-pci", "--no-telemetry", "--no-shconf",
			     "--log-level=3", "--force-max-simd-bitwidth=512", "--vdev=net_null0", "-l", "0", "-m", memory};
	if (rte_eal_init((int)RTE_DIM(arguments), arguments) < 0)
		return -rte_errno;
	return 0;
}

uint64_t peer_ticks(void)
{
	return rte_rdtsc_precise();
}

static uint16_t make(struct rte_graph *of, struct rte_node *node, void **objects, uint16_t count)
{
	RTE_SET_USED(objects);
	RTE_SET_USED(count);
	struct rte_mbuf **to = (struct rte_mbuf **)rte_node_next_stream_get(of, node, 0, VECTOR);
	if (rte_pktmbuf_alloc_bulk(pool, to, VECTOR) < 0)
		return 0;
	for (uint16_t i = 0; i < VECTOR; i++) {
		struct frame frame = next_frame();
		memcpy(rte_pktmbuf_mtod(to[i], void *), frame.bytes, ROOM);
		to[i]->data_len = frame.length;
		to[i]->pkt_len = frame.length;
	}
	rte_node_next_stream_put(of, node, 0, VECTOR);
	return VECTOR;
}

static struct rte_node_register source = {
	.name = "bench_source",
	.flags = RTE_NODE_SOURCE_F,
	.process = make,
	.nb_edges = 1,
	.next_nodes = {"ip4_lookup"},
};
RTE_NODE_REGISTER(source);

/* Sets up the null port and the graph. */
int nodes_open(void)
{
	pool = rte_pktmbuf_pool_create("frames", BUFFERS, 2 * VECTOR, PRIVATE, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (!pool)
		return -rte_errno;
	struct rte_eth_conf conf = {0};
	int done = rte_eth_dev_configure(0, 1, 1, &conf);
	if (!done)
		done = rte_eth_rx_queue_setup(0, 0, 512, SOCKET_ID_ANY, NULL, pool);
	if (!done)
		done = rte_eth_tx_queue_setup(0, 0, 512, SOCKET_ID_ANY, NULL);
	if (!done)
		done = rte_eth_dev_start(0);
	struct rte_node_ethdev_config port = {
		.port_id = 0, .num_rx_queues = 1, .num_tx_queues = 1, .mp = &pool, .mp_count = 1};
	if (!done)
		done = rte_node_eth_config(&port, 1, 1);
	if (done)
		return done;
	const char *names[] = {"bench_source", "ip4_lookup", "ip4_rewrite", "ethdev_tx-*", "pkt_drop"};
	struct rte_graph_param param = {
		.socket_id = (int)rte_socket_id(), .nb_node_patterns = RTE_DIM(names), .node_patterns = names};
	if (rte_graph_create("bench", &param) == RTE_GRAPH_ID_INVALID)
		return -rte_errno;
	graph = rte_graph_lookup("bench");
	return graph ? 0 : -ENOENT;
}

/* Adds a next hop behind the null port. */
int nodes_hop(uint32_t hop)
{
	uint8_t header[RTE_ETHER_HDR_LEN] = {2, 0, 0, 0, 1, (uint8_t)hop, 2, 0, 0, 0, 0, 3, 8, 0};
	return rte_node_ip4_rewrite_add((uint16_t)hop, header, sizeof(header), 0);
}

int nodes_route(uint32_t address, uint32_t length, uint32_t hop)
{
	return rte_node_ip4_route_add(address, (uint8_t)length, (uint16_t)hop, RTE_NODE_IP4_LOOKUP_NEXT_REWRITE);
}

/* Walks the graph for so many milliseconds, with frames from `next`, and forgets what the nodes counted
 * before. */
void nodes_walk(uint32_t milliseconds, struct frame (*next)(void))
{
	rte_node_t count;
	rte_graph_off_t offset;
	struct rte_node *node;
	next_frame = next;
	rte_graph_foreach_node(count, offset, graph, node)
		node->total_cycles = node->total_objs = node->total_calls = 0;
	uint64_t end = rte_rdtsc() + rte_get_tsc_hz() / 1000 * milliseconds;
	while (rte_rdtsc() < end)
		for (int i = 0; i < 32; i++)
			rte_graph_walk(graph);
}

static struct rte_node *find(uint32_t which)
{
	static const char *const names[] = {"bench_source", "ip4_lookup", "ip4_rewrite", "ethdev_tx-0", "pkt_drop"};
	return which < RTE_DIM(names) ? rte_graph_node_get_by_name("bench", names[which]) : NULL;
}

/* Packets and ticks of the source (0), ip4_lookup (1), ip4_rewrite (2), ethdev_tx (3) and pkt_drop (4). */
uint64_t nodes_packets(uint32_t which)
{
	struct rte_node *node = find(which);
	return node ? node->total_objs : 0;
}

uint64_t nodes_ticks(uint32_t which)
{
	struct rte_node *node = find(which);
	return node ? node->total_cycles : 0;
}
