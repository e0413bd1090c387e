/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast path at XDP: frames of af-xdp ports.
 */
#ifndef MMB_FAST_XDP_H
#define MMB_FAST_XDP_H

#include "fast.h"
#include "fast_checksum.h"

/* Interfaces by port number. Port numbers are never reused. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, STEER_FAST_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} fast_ports SEC(".maps");

/* The transport checksum of a packet after its action; negative: it cannot be computed.
 *
 * Where a sending kernel left the checksum to hardware, which a veth does not have, the field holds the
 * folded sum of the pseudo header. One correct checksum in 65,536 has this value by chance; completing it
 * yields the same value. */
static __always_inline __s64 fast_checksum(struct xdp_md *context, const struct fast_packet *packet,
					   const struct fast_action *action, void *end)
{
	__u16 check = *packet->check;
	__u8 proto = packet->proto;
	__u64 numbers;
	__s64 sum;

	if (proto == IPPROTO_UDP && check == 0)
		return 0;
	if ((proto == IPPROTO_TCP || proto == IPPROTO_UDP) && check == fast_fold(packet->pseudo)) {
		sum = fast_sum(context, packet->l4 - (void *)(long)context->data, packet->len);
		if (sum < 0)
			return -1;
		check = ~fast_fold(sum);
	}
	numbers = fast_numbers_diff(packet, action, end);
	if (numbers != 0)
		check = ~fast_fold((__u64)(__u16)~check + numbers);
	if (action->l4_diff != 0)
		check = ~fast_fold((__u64)(__u16)~check + action->l4_diff);
	return proto == IPPROTO_UDP && check == 0 ? 0xffff : check;
}

/* Forwards a packet if its flow has an action. 0: the packet is unchanged and goes to the socket. */
static __always_inline int fast_forward(struct xdp_md *context, const volatile struct steer_state *state)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct fast_packet packet = {};
	struct fast_action action;
	struct fast_slot *slot;
	__s64 check;
	__u64 now;

	slot = fast_find(data, end, end - data, state, &packet, &action, &now);
	if (slot == NULL || end - data - ETH_HLEN > action.max_len)
		return 0;
	check = fast_checksum(context, &packet, &action, end);
	/* The packet is sent by the verdict XDP_REDIRECT. The helper returns another one if the port is
	 * gone. */
	if (check < 0 || bpf_redirect_map(&fast_ports, action.out, 0) != XDP_REDIRECT)
		return 0;
	fast_count(slot, &packet, &action, 1, end - data, now);
	fast_rewrite(data, end, &packet, &action);
	*packet.check = check;
	return 1;
}

#endif
