/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast path: forwards packets of flows that the engine has handed over, so that they never leave the
 * kernel.
 *
 * The engine writes the action of a flow to a slot of `fast_slots`, together with the flow's key, and the
 * slot's number to `fast_index`. Unusual packets, and those that the engine must see (mostly the first and
 * last packets of TCP connections), go to the socket, so that the program needs little knowledge of
 * protocols. It modifies nothing before it is certain that the packet is forwarded.
 */
#ifndef MMB_FAST_H
#define MMB_FAST_H

#include "fast_parse.h"
#include "fast_rewrite.h"
#include "fast_table.h"

/* Whether the action covers this packet. */
static __always_inline int fast_covers(const struct fast_slot *slot, const struct fast_packet *packet,
				    const struct fast_action *action)
{
	const struct tcphdr *tcp = packet->l4;

	if (packet->required_flags != 0 && (packet->required_flags & action->flags) == 0)
		return 0;
	if ((action->flags & STEER_FAST_NUMBERS) && !packet->has_plain_numbers)
		return 0;
	if (!(action->flags & STEER_FAST_AWAITS) || !packet->is_tcp || *(volatile const __u32 *)&slot->seen != 0)
		return 1;
	return tcp->ack_seq == action->awaits;
}

/* Forwards a packet if its flow has an action. 0: the packet is unchanged and goes to the socket. */
static __always_inline int fast_forward(struct xdp_md *context, const volatile struct steer_state *state)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	const struct fast_slot *header;
	struct fast_packet packet = {};
	struct fast_action action;
	struct fast_slot *slot;
	__u32 first = 0, i;
	__s64 check;
	__u64 stamp, now, beat;
	__u8 hops;

	header = bpf_map_lookup_elem(&fast_slots, &first);
	if (header == NULL)
		return 0;
	stamp = *(volatile const __u64 *)&header->action.stamp;
	if (stamp == 0 || !fast_parse(context, &packet))
		return 0;
	if (stamp & STEER_FAST_DESTINATION) {
		if (fast_is_martian(&packet))
			return 0;
		for (i = 0; i < 4; i++)
			packet.key.src[i] = 0;
		packet.key.ports = 0;
		packet.key.kind &= 0xff;
	}
	packet.key.port = state->port;
	slot = fast_lookup_any(&packet.key, state->secrets, stamp, &action);
	if (slot == NULL || !fast_covers(slot, &packet, &action))
		return 0;
	/* A process that stands still neither ends sessions nor takes changes into account. */
	now = bpf_ktime_get_coarse_ns();
	beat = *(volatile const __u64 *)&header->last;
	if (beat != 0 && (__s64)(now - beat) > (__s64)STEER_FAST_BEAT_MAX)
		return 0;
	hops = packet.is_ip4 ? ((struct iphdr *)packet.l3)->ttl : ((struct ipv6hdr *)packet.l3)->hop_limit;
	if (((action.flags & STEER_FAST_TTL) && hops <= 1) || end - data - ETH_HLEN > action.max_len)
		return 0;
	check = fast_checksum(context, &packet, &action);
	/* The packet is sent by the verdict XDP_REDIRECT. The helper returns another one if the port is
	 * gone. */
	if (check < 0 || bpf_redirect_map(&fast_ports, action.out, 0) != XDP_REDIRECT)
		return 0;
	fast_count(slot, &packet, &action, end - data, now);
	fast_rewrite(data, &packet, &action, check);
	return 1;
}

#endif
