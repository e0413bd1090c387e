/* SPDX-License-Identifier: Apache-2.0
 *
 * The XDP program of every af-xdp port: hands the frames of the interface to the port's socket.
 *
 * While `gate` is 0, it hands over all frames (wire mode). Otherwise `gate` holds STEER_ON and the
 * interface's Ethernet address, and the kernel keeps frames to other Ethernet addresses (multicast and
 * broadcast too), frames that are neither IPv4 nor IPv6 (ARP, VLAN tags), IPv6 packets to link-local
 * addresses, packets to the machine's addresses (local.h), and DHCP replies for the interface's client.
 * Without a socket, the kernel gets every frame.
 *
 * Compiled with STEER_FAST, it forwards packets of some flows itself instead of handing them over
 * (fast_xdp.h).
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <stddef.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "gate.h"
#include "local.h"
#include "steer.h"
#ifdef STEER_FAST
#include "fast_xdp.h"
#endif

/* Sockets by receive queue; a port has one. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

/* Written by user space, which maps it into its memory. */
volatile struct steer_state state;

/* The destination port of replies to DHCP clients, and the beginning of a reply to the owner of an Ethernet
 * address: op, htype, hlen; `chaddr` is the client's address (RFC 2131, section 2). */
#define DHCP_CLIENT 68

struct dhcp_reply {
	__u8 op;
	__u8 htype;
	__u8 hlen;
	__u8 unused[25];
	__u16 chaddr[3];
};

/* Whether the packet is a DHCP reply to the client that has the frame's destination address. A server sends
 * it to the address that it offers, which the interface does not have yet (RFC 2131, section 4.1). A reply
 * to a client behind this router has another `chaddr`. */
static __always_inline int is_own_dhcp_reply(const __u16 *ether, const struct iphdr *ip4, const void *end)
{
	const struct udphdr *udp = (const void *)(ip4 + 1);
	const struct dhcp_reply *reply = (const void *)(udp + 1);

	if (ip4->protocol != IPPROTO_UDP || ip4->ihl != 5 || (ip4->frag_off & bpf_htons(0x3fff)) != 0)
		return 0;
	if ((const void *)(reply + 1) > end || udp->dest != bpf_htons(DHCP_CLIENT))
		return 0;
	return reply->op == 2 && reply->htype == 1 && reply->hlen == 6 && reply->chaddr[0] == ether[0] &&
	       reply->chaddr[1] == ether[1] && reply->chaddr[2] == ether[2];
}

/* The checksum after two words have become 0xffff, which adds nothing to a sum of ones' complements
 * (RFC 1624). */
static __always_inline __u16 checksum_without(__u16 checksum, const __u16 *words)
{
	__u32 sum = (__u32)(__u16)~checksum + (__u16)~words[0] + (__u16)~words[1];

	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

/* Makes a broadcast of a DHCP reply, as a server may send it as well. The kernel delivers it to its client.
 * With its own destination, a kernel that forwards would take a forged reply past all rules. */
static __always_inline void broadcast_dhcp_reply(struct iphdr *ip4)
{
	struct udphdr *udp = (void *)(ip4 + 1);
	const __u16 *address = (const __u16 *)&ip4->daddr;

	if (udp->check != 0) {
		udp->check = checksum_without(udp->check, address);
		if (udp->check == 0)
			udp->check = 0xffff;
	}
	ip4->check = checksum_without(ip4->check, address);
	ip4->daddr = 0xffffffff;
}

/* Whether the kernel keeps a frame. Truncated packets go to the socket; the engine drops them with a
 * reason. */
static __always_inline int belongs_to_kernel(const struct xdp_md *context, __u64 gate)
{
	const __u16 *ether = (void *)(long)context->data;
	const void *end = (void *)(long)context->data_end;
	struct iphdr *ip4 = (void *)ether + ETH_HLEN;
	const struct ipv6hdr *ip6 = (const void *)ip4;

	if ((const void *)ether + ETH_HLEN > end)
		return 1;
	if (!gate_admits(gate, ether) || is_local(ether, end))
		return 1;
	if (ether[6] == bpf_htons(ETH_P_IP)) {
		if ((const void *)(ip4 + 1) > end || !is_own_dhcp_reply(ether, ip4, end))
			return 0;
		broadcast_dhcp_reply(ip4);
		return 1;
	}
	if (ether[6] == bpf_htons(ETH_P_IPV6))
		return (const void *)(ip6 + 1) <= end &&
		       (ip6->daddr.s6_addr16[0] & bpf_htons(0xffc0)) == bpf_htons(0xfe80);
	return 1;
}

SEC("xdp")
int steer(struct xdp_md *context)
{
	__u64 gate = state.gate;

	if (gate != 0 && belongs_to_kernel(context, gate))
		return XDP_PASS;
#ifdef STEER_FAST
	if (fast_forward(context, &state))
		return XDP_REDIRECT;
#endif
	return bpf_redirect_map(&xsks, context->rx_queue_index, XDP_PASS);
}

char LICENSE[] SEC("license") = "Apache-2.0";
