/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast path at tc: socket buffers of af-packet ports.
 *
 * A buffer may hold many segments of a flow (segmentation offload, GRO), which are forwarded as one, and its
 * transport checksum may be left to a device. The kernel's helpers change checksums so that both stay right.
 */
#ifndef MMB_FAST_TC_H
#define MMB_FAST_TC_H

#include "fast.h"
#include "gate.h"

/* Interfaces by port number. Port numbers are never reused. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STEER_FAST_PORTS);
	__type(key, __u32);
	__type(value, struct fast_interface);
} fast_interfaces SEC(".maps");

/* Bytes of all headers that are read or written: Ethernet, IPv6, TCP with timestamps. */
#define FAST_HEADERS (ETH_HLEN + sizeof(struct ipv6hdr) + sizeof(struct tcphdr) + 12)

/* Length of the headers that each segment of a buffer has. */
static __always_inline __u32 fast_header_len(const void *data, const struct fast_packet *packet)
{
	const __u8 *l4 = packet->l4;

	return packet->l4 - data + (packet->is_tcp ? (l4[12] >> 4) * 4 : sizeof(struct udphdr));
}

/* Number of segments of a buffer. A virtual machine may leave it out. */
static __always_inline __u32 fast_segments(const struct __sk_buff *skb, __u32 header)
{
	if (skb->gso_size == 0)
		return 1;
	if (skb->gso_segs != 0)
		return skb->gso_segs;
	return (skb->len - header + skb->gso_size - 1) / skb->gso_size;
}

/* Changes the transport checksum by what the action has changed: the addresses, which the pseudo header has,
 * and fields of the transport header. `old` is the packet as it was; `numbers` the difference of its TCP
 * numbers. `at` is the offset of the checksum. */
static __always_inline void fast_update_checksum(struct __sk_buff *skb, struct fast_packet *old,
						 struct fast_action *action, __u64 numbers, __u32 at)
{
	__u64 flags = old->proto == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	__u32 ports = action->sport | (__u32)action->dport << 16;
	__u16 addresses, fields;

	if (action->flags & STEER_FAST_NAT) {
		/* Source and destination are side by side in both. */
		addresses = fast_fold(bpf_csum_diff(old->key.src, 32, action->src, 32, 0));
		if (addresses != 0xffff && !(old->is_ip4 && old->proto == IPPROTO_ICMP)) {
			/* IPv6 has no header checksum that would balance the sum of a device. */
			if (!old->is_ip4)
				bpf_csum_update(skb, addresses);
			bpf_l4_csum_replace(skb, at, 0, addresses, flags | BPF_F_PSEUDO_HDR);
		}
		numbers += (__u64)(__u32)~old->key.ports + ports;
	}
	fields = fast_fold(numbers);
	if (fields != 0 && fields != 0xffff)
		bpf_l4_csum_replace(skb, at, 0, fields, flags);
}

/* Whether a frame begins with this address. */
static __always_inline int fast_is_mac(const __u16 *ether, const volatile __u16 *mac)
{
	return ether[0] == mac[0] && ether[1] == mac[1] && ether[2] == mac[2];
}

/* Remembers the source address of a frame from a port's peer. A peer takes what it is given for its own,
 * whatever address it has. So it is given frames to this address only. */
static __always_inline void fast_learn_peer(struct __sk_buff *skb, const volatile struct steer_state *state)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct fast_interface *interface;
	const __u16 *ether = data;
	__u32 port = state->port;

	interface = bpf_map_lookup_elem(&fast_interfaces, &port);
	if (interface == NULL || !interface->to_peer || data + ETH_HLEN > end)
		return;
	if ((interface->peer[0] | interface->peer[1] | interface->peer[2]) != 0)
		return;
	interface->peer[0] = ether[3];
	interface->peer[1] = ether[4];
	interface->peer[2] = ether[5];
}

/* Sends a packet out of another port if its flow has an action. 0: the packet is unchanged and goes to the
 * engine. */
static __always_inline int fast_forward(struct __sk_buff *skb, const volatile struct steer_state *state)
{
	struct fast_packet packet = {};
	__u32 header, len, at, segments, to_peer;
	const struct fast_interface *out;
	struct fast_action action;
	struct fast_slot *slot;
	__u64 now, gate, numbers;
	void *data, *end;

	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (data + FAST_HEADERS > end && skb->len > end - data) {
		/* Headers may be in fragments. */
		bpf_skb_pull_data(skb, skb->len < FAST_HEADERS ? skb->len : FAST_HEADERS);
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
	}
	gate = state->gate;
	if (skb->vlan_present || data + ETH_HLEN > end || (gate != 0 && !gate_admits(gate, data)))
		return 0;
	slot = fast_find(data, end, skb->len, state, &packet, &action, &now);
	if (slot == NULL)
		return 0;
	header = fast_header_len(data, &packet);
	len = skb->gso_size == 0 ? skb->len : header + skb->gso_size;
	if (len - ETH_HLEN > action.max_len)
		return 0;
	out = bpf_map_lookup_elem(&fast_interfaces, &action.out);
	if (out == NULL)
		return 0;
	segments = fast_segments(skb, header);
	fast_count(slot, &packet, &action, segments, skb->len + (segments - 1) * header, now);
	numbers = fast_numbers_diff(&packet, &action, end);
	at = (void *)packet.check - data;
	fast_rewrite(data, end, &packet, &action);
	to_peer = out->to_peer && fast_is_mac(data, out->peer);
	fast_update_checksum(skb, &packet, &action, numbers, at);
	if (to_peer)
		return bpf_redirect_peer(out->index, 0) == TC_ACT_REDIRECT;
	return bpf_redirect(out->index, 0) == TC_ACT_REDIRECT;
}

#endif
