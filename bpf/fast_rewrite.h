/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast path: counting and rewriting a packet.
 */
#ifndef MMB_FAST_REWRITE_H
#define MMB_FAST_REWRITE_H

#include "fast_parse.h"

/* The difference of the sums of two numbers in a TCP header, before and after something is added. */
static __always_inline __u64 fast_number_diff(__be32 old, __u32 add)
{
	return (__u64)(__u32)~old + bpf_htonl(bpf_ntohl(old) + add);
}

/* A window after its shift. */
static __always_inline __be16 fast_window(__be16 old, __s32 shift)
{
	__u32 window = bpf_ntohs(old);

	window = shift < 0 ? window >> (-shift & 15) : window << (shift & 15);
	return bpf_htons(window > 0xffff ? 0xffff : window);
}

/* The timestamps of a segment that the action adds something to: TSval, then TSecr. NULL: none. */
static __always_inline __be32 *fast_stamps(const struct fast_packet *packet, const struct fast_action *action,
					   void *end)
{
	struct tcphdr *tcp = packet->l4;
	__be32 *stamps = (void *)(tcp + 1) + 4;

	/* fast_covers() has seen to it that they are there; the verifier does not know. */
	return action->flags & STEER_FAST_STAMPS && (void *)(stamps + 2) <= end ? stamps : NULL;
}

/* The difference of the sums of a packet's TCP numbers, before and after an action. */
static __always_inline __u64 fast_numbers_diff(const struct fast_packet *packet,
					       const struct fast_action *action, void *end)
{
	const struct tcphdr *tcp = packet->l4;
	const __be32 *stamps;
	__u64 diff;

	if (!(action->flags & STEER_FAST_NUMBERS) || !packet->is_tcp)
		return 0;
	diff = fast_number_diff(tcp->seq, action->add_seq) + fast_number_diff(tcp->ack_seq, action->add_ack);
	diff += (__u64)(__u16)~tcp->window + fast_window(tcp->window, action->shift_window);
	stamps = fast_stamps(packet, action, end);
	if (stamps != NULL)
		diff += fast_number_diff(stamps[0], action->add_tsval) +
			fast_number_diff(stamps[1], action->add_tsecr);
	return diff;
}

/* Applies an action to a packet, except to its transport checksum. */
static __always_inline void fast_rewrite(__u16 *ether, void *end, const struct fast_packet *packet,
					 const struct fast_action *action)
{
	__be32 *stamps;
	struct ipv6hdr *ip6 = packet->l3;
	struct iphdr *ip4 = packet->l3;
	struct tcphdr *tcp = packet->l4;
	__u16 *ports = packet->l4, i;

	if (action->flags & STEER_FAST_MAC)
		for (i = 0; i < 6; i++)
			ether[i] = action->mac[i];
	if (packet->is_ip4) {
		ip4->check = ~fast_fold((__u64)(__u16)~ip4->check + action->l3_diff);
		ip4->ttl -= (action->flags & STEER_FAST_TTL) != 0;
	} else {
		ip6->hop_limit -= (action->flags & STEER_FAST_TTL) != 0;
	}
	if (action->flags & STEER_FAST_NUMBERS && packet->is_tcp) {
		tcp->seq = bpf_htonl(bpf_ntohl(tcp->seq) + action->add_seq);
		tcp->ack_seq = bpf_htonl(bpf_ntohl(tcp->ack_seq) + action->add_ack);
		tcp->window = fast_window(tcp->window, action->shift_window);
		stamps = fast_stamps(packet, action, end);
		if (stamps != NULL) {
			stamps[0] = bpf_htonl(bpf_ntohl(stamps[0]) + action->add_tsval);
			stamps[1] = bpf_htonl(bpf_ntohl(stamps[1]) + action->add_tsecr);
		}
	}
	if (!(action->flags & STEER_FAST_NAT))
		return;
	if (packet->is_ip4) {
		ip4->saddr = action->src[0];
		ip4->daddr = action->dst[0];
	} else {
		for (i = 0; i < 4; i++) {
			ip6->saddr.s6_addr32[i] = action->src[i];
			ip6->daddr.s6_addr32[i] = action->dst[i];
		}
	}
	if (packet->proto == IPPROTO_TCP || packet->proto == IPPROTO_UDP) {
		ports[0] = action->sport;
		ports[1] = action->dport;
	} else {
		((struct icmp6hdr *)packet->l4)->icmp6_identifier = action->sport;
	}
}

/* Counts a packet before it is rewritten, as `packets` segments. When two CPUs handle packets of one
 * direction at once, the tracked TCP state may fall behind until the next packet. */
static __always_inline void fast_count(struct fast_slot *slot, const struct fast_packet *packet,
				       const struct fast_action *action, __u32 packets, __u32 bytes, __u64 now)
{
	const struct tcphdr *tcp = packet->l4;
	__u32 ack;

	__sync_fetch_and_add(&slot->packets, packets);
	__sync_fetch_and_add(&slot->bytes, bytes);
	slot->last = now;
	if (!packet->is_tcp)
		return;
	if (action->flags & STEER_FAST_TRACK) {
		ack = bpf_ntohl(tcp->ack_seq);
		/* One that lies a little below was overtaken; one far below shows that the old one was
		 * forged. */
		if (slot->seen == 0 || slot->ack - ack > STEER_FAST_IN_FLIGHT)
			slot->ack = ack;
		slot->seen = 1;
	}
	if (packet->required_flags == 0)
		return;
	/* A reader that sees the flag sees the counters of its segment. */
	barrier();
	if (tcp->fin && !(action->flags & STEER_FAST_TRACK))
		slot->fin = STEER_FAST_HAS_FIN;
	if (tcp->rst)
		slot->rst = 1;
}

#endif
