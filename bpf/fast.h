/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast path: forwards packets of flows that the engine has handed over, so that they never leave the
 * kernel. This file finds the action of a packet; fast_xdp.h and fast_tc.h apply it.
 *
 * The engine writes the action of a flow to a slot of `fast_slots`, together with the flow's key, and the
 * slot's number to `fast_index`. Unusual packets, and those that the engine must see (mostly the first and
 * last packets of TCP connections), go to the socket, so that the programs need little knowledge of
 * protocols. They modify nothing before it is certain that the packet is forwarded.
 */
#ifndef MMB_FAST_H
#define MMB_FAST_H

#include "fast_parse.h"
#include "fast_rewrite.h"
#include "fast_table.h"

/* Records a FIN. 0: it is another one than the first, or acknowledges what is hardly in flight. The engine
 * must see these: they may be forged. */
static __always_inline int fast_record_fin(struct fast_slot *slot, const struct fast_packet *packet)
{
	const struct tcphdr *tcp = packet->l4;
	__u32 header = (((const __u8 *)tcp)[12] >> 4) * 4;
	__u32 behind = slot->ack - bpf_ntohl(tcp->ack_seq);
	__u64 fin, old;

	if (slot->seen == 0 || behind + STEER_FAST_IN_FLIGHT > 2 * STEER_FAST_IN_FLIGHT)
		return 0;
	fin = STEER_FAST_HAS_FIN | (__u32)(bpf_ntohl(tcp->seq) + packet->len - header + 1);
	old = __sync_val_compare_and_swap(&slot->fin, 0, fin);
	return old == 0 || old == fin;
}

/* Whether the action covers this packet. */
static __always_inline int fast_covers(struct fast_slot *slot, const struct fast_packet *packet,
				       const struct fast_action *action)
{
	const struct tcphdr *tcp = packet->l4;

	if (packet->is_tcp && packet->required_flags != 0) {
		if ((packet->required_flags & action->flags) == 0)
			return 0;
		if (action->flags & STEER_FAST_TRACK)
			return fast_record_fin(slot, packet);
	}
	if ((action->flags & STEER_FAST_NUMBERS) && packet->options == FAST_OPTIONS_OTHER)
		return 0;
	if ((action->flags & STEER_FAST_STAMPS) && packet->options != FAST_OPTIONS_STAMPS)
		return 0;
	if (!(action->flags & STEER_FAST_AWAITS) || !packet->is_tcp || *(volatile const __u32 *)&slot->seen != 0)
		return 1;
	return tcp->ack_seq == action->awaits;
}

/* Finds the action in force for a packet, whose frame has `bytes`, of which those from `data` to `end` are
 * readable. Fills in `packet`, `action` and the time `now`. NULL: the packet goes to the socket. */
static __always_inline struct fast_slot *fast_find(void *data, void *end, __u64 bytes,
						   const volatile struct steer_state *state,
						   struct fast_packet *packet, struct fast_action *action,
						   __u64 *now)
{
	const struct fast_slot *header;
	struct fast_slot *slot;
	__u32 first = 0, i;
	__u64 stamp, beat;
	__u8 hops;

	header = bpf_map_lookup_elem(&fast_slots, &first);
	if (header == NULL)
		return NULL;
	stamp = *(volatile const __u64 *)&header->action.stamp;
	if (stamp == 0 || !fast_parse(data, end, bytes, packet))
		return NULL;
	if (stamp & STEER_FAST_DESTINATION) {
		if (fast_is_martian(packet))
			return NULL;
		for (i = 0; i < 4; i++)
			packet->key.src[i] = 0;
		packet->key.ports = 0;
		packet->key.kind &= 0xff;
	}
	packet->key.port = state->port;
	slot = fast_lookup_any(&packet->key, state->secrets, stamp, action);
	if (slot == NULL || !fast_covers(slot, packet, action))
		return NULL;
	/* A process that stands still neither ends sessions nor takes changes into account. */
	*now = bpf_ktime_get_coarse_ns();
	beat = *(volatile const __u64 *)&header->last;
	if (beat != 0 && (__s64)(*now - beat) > (__s64)STEER_FAST_BEAT_MAX)
		return NULL;
	hops = packet->is_ip4 ? ((struct iphdr *)packet->l3)->ttl : ((struct ipv6hdr *)packet->l3)->hop_limit;
	if ((action->flags & STEER_FAST_TTL) && hops <= 1)
		return NULL;
	return slot;
}

#endif
