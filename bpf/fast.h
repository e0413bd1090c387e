/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast path: does with a packet what mmb has done with others of its flow, so that it never leaves the kernel.
 *
 * mmb writes what it does with a flow into a place of `fast_slots`, together with the flow's key, and the place's number
 * into `fast_index`: a table of buckets, of which a key has two, by its mix. Whatever is unusual about a packet, and
 * whatever mmb has to see for its own sake (mostly the beginning and the end of a TCP connection), is mmb's, so that what
 * the program knows of protocols is little. It changes nothing before it is certain that the packet goes out.
 *
 * mmb writes both while the program runs, on another CPU, and takes no lock. What the index says is a hint: whatever
 * place a lane leads to, it is followed only if the whole key that stands there is the packet's. `version` tells of a place
 * that has been written between two looks at it (the CPU does loads and stores in the program's order, as x86 does); lanes
 * are read and written as a whole. What can happen in between is that a flow is not found that is there, whose packet is
 * mmb's then.
 */
#ifndef MMB_FAST_H
#define MMB_FAST_H

#include <linux/icmpv6.h>
#include <linux/in.h>
#include <linux/tcp.h>
#include <linux/udp.h>

/* All ports have the same three maps, which are made by who loads the program; mmb maps the first two into its memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, STEER_FAST_BUCKETS);
	__type(key, __u32);
	__type(value, struct fast_bucket);
} fast_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, STEER_FAST_SLOTS);
	__type(key, __u32);
	__type(value, struct fast_slot);
} fast_slots SEC(".maps");

/* By a port's number, which never comes back, its interface. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, STEER_FAST_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} fast_ports SEC(".maps");

/* Where transport headers stand at most, and the bytes that are summed at most. */
#define FAST_FROM_MAX (ETH_HLEN + sizeof(struct ipv6hdr))
#define FAST_SUM_MAX 16383

/* What is known of a packet. */
struct fast_packet {
	struct fast_key key;
	/* Whether it is IPv4, else IPv6; and TCP. The kernel, which has to be sure of every access, follows these two, and not
	 * the bytes in `key` that say the same, which is why they are hidden from the compiler by barrier_var(). */
	__u64 is_ip4;
	__u64 is_tcp;
	__u8 proto;
	/* TCP: what the flow's action must say for this segment to go on, one of these flags; 0: nothing. */
	__u16 needs;
	/* Network header. */
	void *l3;
	/* Transport header, its checksum, and the bytes from it to the end of the IP packet. */
	void *l4;
	__u16 *check;
	__u32 len;
	/* Sum of the pseudo header. */
	__u64 pseudo;
};

static __always_inline __u16 fast_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* A number that the compiler does not know. */
static __always_inline __u64 fast_hidden(__u64 number)
{
	barrier_var(number);
	return number;
}

/* Says where a key stands in the index. Keys that differ have the same sum with one choice of secrets in 2^32 at most: what a
 * difference in one word does to the sum is that difference times the other word of its pair plus its secret. What follows
 * loses nothing. */
static __always_inline __u64 fast_mix(const struct fast_key *key, const volatile __u32 *secrets)
{
	const __u32 *words = (const void *)key;
	__u64 mix, i;

	mix = ((__u64)key->kind + secrets[10]) * secrets[11];
#pragma unroll
	for (i = 0; i < 10; i += 2)
		mix += ((__u64)words[i] + secrets[i]) * ((__u64)words[i + 1] + secrets[i + 1]);
	mix = (mix ^ mix >> 32) * STEER_FAST_MIX;
	return mix ^ mix >> 32;
}

static __always_inline int fast_ip4(void *l3, void *end, struct fast_packet *packet)
{
	struct iphdr *ip = l3;
	__u32 *words = l3, len;

	if ((void *)(ip + 1) > end || *(__u8 *)l3 != 0x45 || (ip->frag_off & bpf_htons(0xbfff)) != 0)
		return 0;
	len = bpf_ntohs(ip->tot_len);
	if (len < sizeof(*ip) || len > (__u64)(end - l3))
		return 0;
	if (fast_fold((__u64)words[0] + words[1] + words[2] + words[3] + words[4]) != 0xffff)
		return 0;
	packet->key.src[0] = ip->saddr;
	packet->key.dst[0] = ip->daddr;
	packet->proto = ip->protocol;
	packet->l4 = ip + 1;
	packet->len = len - sizeof(*ip);
	packet->pseudo = (__u64)words[3] + words[4];
	packet->is_ip4 = fast_hidden(1);
	return 1;
}

static __always_inline int fast_ip6(void *l3, void *end, struct fast_packet *packet)
{
	struct ipv6hdr *ip = l3;
	__u32 *words = l3, len, i;

	if ((void *)(ip + 1) > end || *(__u8 *)l3 >> 4 != 6)
		return 0;
	len = bpf_ntohs(ip->payload_len);
	if (len > (__u64)(end - (void *)(ip + 1)))
		return 0;
	packet->pseudo = 0;
	for (i = 0; i < 4; i++) {
		packet->key.src[i] = words[2 + i];
		packet->key.dst[i] = words[6 + i];
		packet->pseudo += (__u64)words[2 + i] + words[6 + i];
	}
	packet->proto = ip->nexthdr;
	packet->l4 = ip + 1;
	packet->len = len;
	packet->is_ip4 = fast_hidden(0);
	return 1;
}

static __always_inline int fast_tcp(void *end, struct fast_packet *packet)
{
	struct tcphdr *tcp = packet->l4;
	__u8 *bytes = packet->l4;

	if ((void *)(tcp + 1) > end)
		return 0;
	if (bytes[12] >> 4 < 5 || (bytes[12] >> 4) * 4 > packet->len)
		return 0;
	/* ACK, and of SYN, FIN, RST none, or the second. */
	if ((bytes[13] & 0x17) != 0x10)
		packet->needs = (bytes[13] & 0x17) == 0x11 ? STEER_FAST_CONTROL | STEER_FAST_FIN : STEER_FAST_CONTROL;
	packet->key.ports = *(__u32 *)tcp;
	packet->check = &tcp->check;
	packet->is_tcp = fast_hidden(1);
	return 1;
}

static __always_inline int fast_udp(void *end, struct fast_packet *packet)
{
	struct udphdr *udp = packet->l4;

	if ((void *)(udp + 1) > end || packet->len < sizeof(*udp) || bpf_ntohs(udp->len) != packet->len)
		return 0;
	if (udp->check == 0 && !packet->is_ip4)
		return 0;
	packet->key.ports = *(__u32 *)udp;
	packet->check = &udp->check;
	return 1;
}

static __always_inline int fast_echo(void *end, struct fast_packet *packet, __u8 request, __u8 reply)
{
	/* That of ICMP is the same. */
	struct icmp6hdr *icmp = packet->l4;

	if ((void *)(icmp + 1) > end || packet->len < sizeof(*icmp))
		return 0;
	if ((icmp->icmp6_type != request && icmp->icmp6_type != reply) || icmp->icmp6_code != 0)
		return 0;
	packet->key.ports = icmp->icmp6_identifier | (__u32)bpf_htons(icmp->icmp6_type) << 16;
	packet->check = &icmp->icmp6_cksum;
	return 1;
}

/* Finds a packet's flow; 0: it is mmb's. */
static __always_inline int fast_parse(struct xdp_md *context, struct fast_packet *packet)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	__u16 *ether = data;

	if (data + ETH_HLEN > end)
		return 0;
	packet->l3 = data + ETH_HLEN;
	packet->is_tcp = fast_hidden(0);
	if (ether[6] == bpf_htons(ETH_P_IP)) {
		if (!fast_ip4(packet->l3, end, packet))
			return 0;
	} else if (ether[6] != bpf_htons(ETH_P_IPV6) || !fast_ip6(packet->l3, end, packet)) {
		return 0;
	}
	packet->pseudo += bpf_htons(packet->proto) + bpf_htons(packet->len);
	packet->key.kind = (packet->is_ip4 ? 4 : 6) | (__u32)packet->proto << 8;
	if (packet->proto == IPPROTO_TCP)
		return fast_tcp(end, packet);
	if (packet->proto == IPPROTO_UDP)
		return fast_udp(end, packet);
	if (packet->proto == IPPROTO_ICMP && packet->is_ip4)
		return fast_echo(end, packet, 8, 0);
	if (packet->proto == IPPROTO_ICMPV6 && !packet->is_ip4)
		return fast_echo(end, packet, ICMPV6_ECHO_REQUEST, ICMPV6_ECHO_REPLY);
	return 0;
}

/* Whether no packet that is forwarded may have this source: groups and what is reserved, this network, loopback; a source that
 * only its link knows. */
static __always_inline int fast_is_martian(const struct fast_packet *packet)
{
	const __be32 *src = packet->key.src;
	__u32 first = bpf_ntohl(src[0]);

	if (packet->is_ip4)
		return first >> 29 == 7 || first >> 24 == 0 || first >> 24 == 127;
	return first >> 24 == 0xff || first >> 22 == 0x3fa || ((src[0] | src[1] | src[2]) == 0 && bpf_ntohl(src[3]) <= 1);
}

/* Adds the words of a piece of a frame to a sum; below 0: the frame does not have it. */
static __always_inline __s64 fast_add(void *at, void *end, __u32 size, __s64 sum)
{
	/* What is compared is what is read: the compiler would keep two registers, and the kernel lose sight. */
	barrier_var(at);
	return at + size > end ? -1 : bpf_csum_diff(NULL, 0, at, size, sum);
}

/* Sums `len` bytes of the frame from `from` on; below 0: that cannot be said.
 *
 * A function of its own, so that the kernel checks it once, and not each way through it with all that follows; every
 * piece is found from the frame's beginning for the same reason. Older kernels sum no more than 512 bytes at a time. */
__noinline __s64 fast_sum(struct xdp_md *context, __u64 from, __u64 len)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end, *at;
	__u64 size, i;
	__s64 sum = 0;

	if (from > FAST_FROM_MAX || len > FAST_SUM_MAX)
		return -1;
	data += from;
	for (i = 0; i < len / 512 && sum >= 0; i++)
		sum = fast_add(data + i * 512, end, 512, sum);
#pragma unroll
	for (size = 256; size >= 4; size /= 2)
		if ((len & size) != 0 && sum >= 0)
			sum = fast_add(data + (len & -(2 * size)), end, size, sum);
	at = data + (len & -4);
	barrier_var(at);
	if ((len & 2) != 0 && sum >= 0)
		sum = at + 2 > end ? -1 : sum + *(__u16 *)at;
	at = data + (len & -2);
	barrier_var(at);
	/* The first byte of a word whose other one is 0. */
	if ((len & 1) != 0 && sum >= 0)
		sum = at + 1 > end ? -1 : sum + *(__u8 *)at;
	return sum;
}

/* A packet's transport checksum as its flow's action leaves it; below 0: that cannot be said.
 *
 * A kernel leaves it to hardware, which a veth has not: the field holds the folded sum of the pseudo header then. By chance
 * that is so with one right checksum in 65,536, which comes out as it is. */
static __always_inline __s64 fast_checksum(struct xdp_md *context, const struct fast_packet *packet,
					   const struct fast_action *action)
{
	__u16 check = *packet->check;
	__u8 proto = packet->proto;
	__s64 sum;

	if (proto == IPPROTO_UDP && check == 0)
		return 0;
	if ((proto == IPPROTO_TCP || proto == IPPROTO_UDP) && check == fast_fold(packet->pseudo)) {
		sum = fast_sum(context, packet->l4 - (void *)(long)context->data, packet->len);
		if (sum < 0)
			return -1;
		check = ~fast_fold(sum);
	}
	if (action->l4_diff != 0)
		check = ~fast_fold((__u64)(__u16)~check + action->l4_diff);
	return proto == IPPROTO_UDP && check == 0 ? 0xffff : check;
}

/* Whether a place has an action in force for a key, which it copies; the place, else NULL. A function of its own, since it is
 * hardly ever called more than once, but from every lane. */
static __noinline struct fast_slot *fast_try(__u32 place, const struct fast_key *key, __u64 stamp, struct fast_action *action)
{
	const __u32 *wanted = (const void *)key, *found;
	struct fast_slot *slot = bpf_map_lookup_elem(&fast_slots, &place);
	__u32 version, other = 0, i;

	if (slot == NULL)
		return NULL;
	version = *(volatile __u32 *)&slot->version;
	barrier();
	found = (const void *)&slot->key;
#pragma unroll
	for (i = 0; i < sizeof(*key) / 4; i++)
		other |= wanted[i] ^ found[i];
	*action = slot->action;
	barrier();
	if ((version & 1) != 0 || *(volatile __u32 *)&slot->version != version)
		return NULL;
	return other == 0 && action->stamp == stamp ? slot : NULL;
}

/* Looks for a key in one of its two buckets. */
static __always_inline struct fast_slot *fast_look(__u32 number, __u64 tag, const struct fast_key *key, __u64 stamp,
						   struct fast_action *action)
{
	const struct fast_bucket *bucket;
	struct fast_slot *slot;
	__u64 lane, i;

	number &= STEER_FAST_BUCKETS - 1;
	bucket = bpf_map_lookup_elem(&fast_index, &number);
	if (bucket == NULL)
		return NULL;
#pragma unroll
	for (i = 0; i < STEER_FAST_LANES; i++) {
		lane = *(volatile const __u64 *)&bucket->lanes[i];
		if (lane >> 32 == tag && (slot = fast_try(lane, key, stamp, action)) != NULL)
			return slot;
	}
	return NULL;
}

/* Whether a key has an action in force, which it copies; the place, to be counted in, else NULL. A key may be in two places, of
 * which one holds no more: every lane with its tag is followed. */
static __always_inline struct fast_slot *fast_find(const struct fast_key *key, const volatile __u32 *secrets, __u64 stamp,
						   struct fast_action *action)
{
	__u64 mix = fast_mix(key, secrets);
	struct fast_slot *slot = fast_look(mix, mix >> 32, key, stamp, action);

	return slot != NULL ? slot : fast_look(mix >> 16, mix >> 32, key, stamp, action);
}

/* Whether the packet's flow has an action in force, or the pair of its addresses, which goes before it: as fast_find(). */
static __always_inline struct fast_slot *fast_find_any(struct fast_key *key, const volatile __u32 *secrets, __u64 stamp,
						       struct fast_action *action)
{
	__u64 in_force = stamp & ~(__u64)STEER_FAST_PAIRS;
	__u32 ports = key->ports;
	struct fast_slot *slot;

	if (stamp & STEER_FAST_PAIRS) {
		key->ports = 0;
		key->kind |= STEER_FAST_PAIR;
		slot = fast_find(key, secrets, in_force, action);
		if (slot != NULL)
			return slot;
		key->ports = ports;
		key->kind &= ~STEER_FAST_PAIR;
	}
	return fast_find(key, secrets, in_force, action);
}

/* Writes into the packet what its flow's action says. */
static __always_inline void fast_rewrite(__u16 *ether, const struct fast_packet *packet,
					 const struct fast_action *action, __u16 check)
{
	struct ipv6hdr *ip6 = packet->l3;
	struct iphdr *ip4 = packet->l3;
	__u16 *ports = packet->l4, i;

	if (action->flags & STEER_FAST_MAC)
		for (i = 0; i < 6; i++)
			ether[i] = action->mac[i];
	*packet->check = check;
	if (packet->is_ip4) {
		ip4->check = ~fast_fold((__u64)(__u16)~ip4->check + action->l3_diff);
		ip4->ttl -= (action->flags & STEER_FAST_TTL) != 0;
	} else {
		ip6->hop_limit -= (action->flags & STEER_FAST_TTL) != 0;
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

/* Counts a packet, before it is rewritten. Where two CPUs have packets of one direction at once, of what is tracked the
 * lesser may win, until the next packet. */
static __always_inline void fast_count(struct fast_slot *slot, const struct fast_packet *packet,
				       const struct fast_action *action, __u32 bytes)
{
	const struct tcphdr *tcp = packet->l4;
	__u32 end, ack;

	__sync_fetch_and_add(&slot->packets, 1);
	__sync_fetch_and_add(&slot->bytes, bytes);
	slot->last = bpf_ktime_get_coarse_ns();
	if (!packet->is_tcp)
		return;
	if (action->flags & STEER_FAST_TRACK) {
		end = bpf_ntohl(tcp->seq) + packet->len - tcp->doff * 4 + tcp->fin;
		ack = bpf_ntohl(tcp->ack_seq);
		if (slot->seen == 0 || (__s32)(end - slot->end) > 0)
			slot->end = end;
		if (slot->seen == 0 || (__s32)(ack - slot->ack) >= 0) {
			slot->ack = ack;
			slot->window = bpf_ntohs(tcp->window);
		}
		slot->seen = 1;
	}
	if (packet->needs == 0)
		return;
	/* Who sees an end sees what was counted of it. */
	barrier();
	if (tcp->fin)
		slot->fin = 1;
	if (tcp->rst)
		slot->rst = 1;
}

/* Whether the flow's action is for this packet, too. */
static __always_inline int fast_may(const struct fast_slot *slot, const struct fast_packet *packet,
				    const struct fast_action *action)
{
	const struct tcphdr *tcp = packet->l4;

	if (packet->needs != 0 && (packet->needs & action->flags) == 0)
		return 0;
	if (!(action->flags & STEER_FAST_AWAITS) || !packet->is_tcp || *(volatile const __u32 *)&slot->seen != 0)
		return 1;
	return tcp->ack_seq == action->awaits;
}

/* Whether the packet has gone the fast path. */
static __always_inline int fast_forward(struct xdp_md *context, const volatile struct steer_state *state)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	const struct fast_slot *header;
	struct fast_packet packet = {};
	struct fast_action action;
	struct fast_slot *slot;
	__u32 first = 0, i;
	__s64 check;
	__u64 stamp;
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
	slot = fast_find_any(&packet.key, state->secrets, stamp, &action);
	if (slot == NULL || !fast_may(slot, &packet, &action))
		return 0;
	hops = packet.is_ip4 ? ((struct iphdr *)packet.l3)->ttl : ((struct ipv6hdr *)packet.l3)->hop_limit;
	if (((action.flags & STEER_FAST_TTL) && hops <= 1) || end - data - ETH_HLEN > action.max_len)
		return 0;
	check = fast_checksum(context, &packet, &action);
	/* Only the verdict sends the packet, and there is none when the port is gone. */
	if (check < 0 || bpf_redirect_map(&fast_ports, action.out, 0) != XDP_REDIRECT)
		return 0;
	fast_count(slot, &packet, &action, end - data);
	fast_rewrite(data, &packet, &action, check);
	return 1;
}

#endif
