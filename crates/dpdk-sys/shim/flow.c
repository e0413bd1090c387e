/* SPDX-License-Identifier: Apache-2.0
 *
 * Hardware flow rules: translates flat structures to rte_flow's lists of items and actions.
 */
#include "shim.h"

#include <errno.h>
#include <string.h>

#include <rte_flow.h>

/* A rule in rte_flow's representation, whose parts point to each other. */
struct flow_spec {
	struct rte_flow_attr attr;
	struct rte_flow_item_ipv4 ip4[2];
	struct rte_flow_item_ipv6 ip6[2];
	struct rte_flow_item_tcp tcp[2];
	struct rte_flow_item_udp udp[2];
	struct rte_flow_item items[4];
	struct rte_flow_action_mark mark;
	struct rte_flow_action_count count;
	struct rte_flow_action_queue queue;
	struct rte_flow_action_rss rss;
	uint16_t queues[MMB_FLOW_QUEUES];
	struct rte_flow_action actions[4];
};

static void set_item(struct rte_flow_item *item, enum rte_flow_item_type type, const void *spec, const void *mask)
{
	item->type = type;
	item->spec = spec;
	item->mask = mask;
}

static void fill(struct flow_spec *w, const struct mmb_flow_rule *rule)
{
	struct rte_flow_action *action = w->actions;
	const struct mmb_flow_ends *ends[2] = { &rule->value, &rule->mask };

	memset(w, 0, sizeof(*w));
	w->attr.ingress = 1;
	w->attr.priority = rule->priority;
	for (int i = 0; i < 2; i++) {
		memcpy(&w->ip4[i].hdr.src_addr, ends[i]->source, 4);
		memcpy(&w->ip4[i].hdr.dst_addr, ends[i]->destination, 4);
		memcpy(w->ip6[i].hdr.src_addr, ends[i]->source, 16);
		memcpy(w->ip6[i].hdr.dst_addr, ends[i]->destination, 16);
		w->tcp[i].hdr.src_port = w->udp[i].hdr.src_port = ends[i]->source_port;
		w->tcp[i].hdr.dst_port = w->udp[i].hdr.dst_port = ends[i]->destination_port;
	}
	set_item(&w->items[0], RTE_FLOW_ITEM_TYPE_ETH, NULL, NULL);
	if (rule->ip == 6)
		set_item(&w->items[1], RTE_FLOW_ITEM_TYPE_IPV6, &w->ip6[0], &w->ip6[1]);
	else
		set_item(&w->items[1], RTE_FLOW_ITEM_TYPE_IPV4, &w->ip4[0], &w->ip4[1]);
	if (rule->proto == 6)
		set_item(&w->items[2], RTE_FLOW_ITEM_TYPE_TCP, &w->tcp[0], &w->tcp[1]);
	else
		set_item(&w->items[2], RTE_FLOW_ITEM_TYPE_UDP, &w->udp[0], &w->udp[1]);
	set_item(&w->items[3], RTE_FLOW_ITEM_TYPE_END, NULL, NULL);

	if (rule->marks) {
		w->mark.id = rule->mark;
		action->type = RTE_FLOW_ACTION_TYPE_MARK;
		action++->conf = &w->mark;
	}
	if (rule->counts) {
		action->type = RTE_FLOW_ACTION_TYPE_COUNT;
		action++->conf = &w->count;
	}
	if (rule->fate == MMB_FLOW_QUEUE) {
		action->type = RTE_FLOW_ACTION_TYPE_QUEUE;
		action->conf = &w->queue;
	} else if (rule->fate == MMB_FLOW_RSS) {
		/* The port's default spreading. */
		w->rss.types = MMB_RSS_FLOWS;
		w->rss.queue = w->queues;
		w->rss.queue_num = RTE_MIN(rule->queues, (uint32_t)MMB_FLOW_QUEUES);
		for (uint16_t i = 0; i < w->rss.queue_num; i++)
			w->queues[i] = i;
		action->type = RTE_FLOW_ACTION_TYPE_RSS;
		action->conf = &w->rss;
	} else {
		action->type = rule->fate == MMB_FLOW_DROP ? RTE_FLOW_ACTION_TYPE_DROP : RTE_FLOW_ACTION_TYPE_PASSTHRU;
	}
	action++;
	action->type = RTE_FLOW_ACTION_TYPE_END;
}

/* Copies the error to the caller's memory: the driver's message is freed with the port. */
static int copy_error(int status, const struct rte_flow_error *error, struct mmb_flow_error *result)
{
	memset(result, 0, sizeof(*result));
	if (status < 0) {
		result->type = error->type;
		if (error->message != NULL)
			strncpy(result->message, error->message, sizeof(result->message) - 1);
	}
	return status;
}

int mmb_flow_validate(uint16_t port, const struct mmb_flow_rule *rule, struct mmb_flow_error *result)
{
	struct rte_flow_error error = { 0 };
	struct flow_spec w;

	fill(&w, rule);
	return copy_error(rte_flow_validate(port, &w.attr, w.items, w.actions, &error), &error, result);
}

struct rte_flow *mmb_flow_create(uint16_t port, const struct mmb_flow_rule *rule, struct mmb_flow_error *result)
{
	struct rte_flow_error error = { 0 };
	struct rte_flow *flow;
	struct flow_spec w;

	fill(&w, rule);
	rte_errno = 0;
	flow = rte_flow_create(port, &w.attr, w.items, w.actions, &error);
	copy_error(flow == NULL ? -1 : 0, &error, result);
	return flow;
}

int mmb_flow_destroy(uint16_t port, struct rte_flow *flow, struct mmb_flow_error *result)
{
	struct rte_flow_error error = { 0 };

	return copy_error(rte_flow_destroy(port, flow, &error), &error, result);
}

int mmb_flow_count(uint16_t port, struct rte_flow *flow, uint64_t *packets, struct mmb_flow_error *result)
{
	const struct rte_flow_action count[2] = { { .type = RTE_FLOW_ACTION_TYPE_COUNT },
						  { .type = RTE_FLOW_ACTION_TYPE_END } };
	struct rte_flow_query_count answer = { 0 };
	struct rte_flow_error error = { 0 };
	int status = rte_flow_query(port, flow, count, &answer, &error);

	*packets = answer.hits_set ? answer.hits : 0;
	return copy_error(status, &error, result);
}

int mmb_flow_negotiate_marks(uint16_t port)
{
	uint64_t features = RTE_ETH_RX_METADATA_USER_MARK;
	int status = rte_eth_rx_metadata_negotiate(port, &features);

	if (status < 0)
		return status;
	return (features & RTE_ETH_RX_METADATA_USER_MARK) != 0;
}
