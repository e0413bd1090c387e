/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast path: parsing a packet to the key of its flow.
 *
 * Accepted are whole IPv4 packets without options and IPv6 packets without extension headers in untagged
 * Ethernet frames, with TCP, UDP or an ICMP echo. All lengths and the IPv4 header checksum are verified.
 */
#ifndef MMB_FAST_PARSE_H
#define MMB_FAST_PARSE_H

#include <linux/icmpv6.h>
#include <linux/in.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "steer.h"

/* Folds a sum to 16 bits (RFC 1071). */
static __always_inline __u16 fast_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* The options of a TCP segment. Timestamps alone are known in the form that RFC 7323, appendix A,
 * recommends. */
enum fast_options {
	FAST_OPTIONS_OTHER,
	FAST_OPTIONS_NONE,
	FAST_OPTIONS_STAMPS,
};

/* A parsed packet. */
struct fast_packet {
	struct fast_key key;
	/* Whether it is IPv4 (otherwise IPv6), and whether it is TCP. The verifier tracks these two
	 * values, but not the bytes of `key` with the same meaning, so fast_opaque() keeps the compiler
	 * from replacing them by those. */
	__u64 is_ip4;
	__u64 is_tcp;
	__u8 proto;
	/* TCP: the action must have one of these flags to forward this segment; 0: no flag is needed. */
	__u16 required_flags;
	/* TCP: one of enum fast_options. */
	__u8 options;
	/* Network header. */
	void *l3;
	/* Transport header, its checksum, and the length from the header to the end of the IP packet. */
	void *l4;
	__u16 *check;
	__u32 len;
	/* Sum of the pseudo header. */
	__u64 pseudo;
};

/* A number whose value the compiler cannot assume. */
static __always_inline __u64 fast_opaque(__u64 number)
{
	barrier_var(number);
	return number;
}

/* `bytes`: of the frame behind its Ethernet header, also where not all of them are readable. */
static __always_inline int fast_parse_ip4(void *l3, void *end, __u64 bytes, struct fast_packet *packet)
{
	struct iphdr *ip = l3;
	__u32 *words = l3, len;

	if ((void *)(ip + 1) > end || *(__u8 *)l3 != 0x45 || (ip->frag_off & bpf_htons(0xbfff)) != 0)
		return 0;
	len = bpf_ntohs(ip->tot_len);
	if (len < sizeof(*ip) || len > bytes)
		return 0;
	if (fast_fold((__u64)words[0] + words[1] + words[2] + words[3] + words[4]) != 0xffff)
		return 0;
	packet->key.src[0] = ip->saddr;
	packet->key.dst[0] = ip->daddr;
	packet->proto = ip->protocol;
	packet->l4 = ip + 1;
	packet->len = len - sizeof(*ip);
	packet->pseudo = (__u64)words[3] + words[4];
	packet->is_ip4 = fast_opaque(1);
	return 1;
}

static __always_inline int fast_parse_ip6(void *l3, void *end, __u64 bytes, struct fast_packet *packet)
{
	struct ipv6hdr *ip = l3;
	__u32 *words = l3, len, i;

	if ((void *)(ip + 1) > end || *(__u8 *)l3 >> 4 != 6)
		return 0;
	len = bpf_ntohs(ip->payload_len);
	if (len + sizeof(*ip) > bytes)
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
	packet->is_ip4 = fast_opaque(0);
	return 1;
}

/* The options of a TCP header: one of enum fast_options. */
static __always_inline int fast_options(void *end, const struct tcphdr *tcp)
{
	const __u8 *bytes = (const void *)tcp;
	const __u32 *options = (const void *)(tcp + 1);

	if (bytes[12] >> 4 == 5)
		return FAST_OPTIONS_NONE;
	/* Two NOPs, kind 8, length 10. */
	if (bytes[12] >> 4 == 8 && (void *)(options + 1) <= end && *options == bpf_htonl(0x0101080a))
		return FAST_OPTIONS_STAMPS;
	return FAST_OPTIONS_OTHER;
}

static __always_inline int fast_parse_tcp(void *end, struct fast_packet *packet)
{
	struct tcphdr *tcp = packet->l4;
	__u8 *bytes = packet->l4;

	if ((void *)(tcp + 1) > end)
		return 0;
	if (bytes[12] >> 4 < 5 || (bytes[12] >> 4) * 4 > packet->len)
		return 0;
	/* ACK without SYN, FIN and RST needs no flag. FIN and ACK needs one of two. */
	if ((bytes[13] & 0x17) == 0x11)
		packet->required_flags = STEER_FAST_CONTROL | STEER_FAST_FIN;
	else if ((bytes[13] & 0x17) != 0x10)
		packet->required_flags = STEER_FAST_CONTROL;
	packet->key.ports = *(__u32 *)tcp;
	packet->check = &tcp->check;
	packet->options = fast_options(end, tcp);
	packet->is_tcp = fast_opaque(1);
	return 1;
}

static __always_inline int fast_parse_udp(void *end, struct fast_packet *packet)
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

static __always_inline int fast_parse_echo(void *end, struct fast_packet *packet, __u8 request, __u8 reply)
{
	/* ICMP has the same layout. */
	struct icmp6hdr *icmp = packet->l4;

	if ((void *)(icmp + 1) > end || packet->len < sizeof(*icmp))
		return 0;
	if ((icmp->icmp6_type != request && icmp->icmp6_type != reply) || icmp->icmp6_code != 0)
		return 0;
	packet->key.ports = icmp->icmp6_identifier | (__u32)bpf_htons(icmp->icmp6_type) << 16;
	packet->check = &icmp->icmp6_cksum;
	return 1;
}

/* Parses a packet and fills in its key. Readable are the bytes from `data` to `end`, at least all headers;
 * the frame has `bytes`. 0: the packet goes to the socket. */
static __always_inline int fast_parse(void *data, void *end, __u64 bytes, struct fast_packet *packet)
{
	__u16 *ether = data;

	if (data + ETH_HLEN > end)
		return 0;
	packet->l3 = data + ETH_HLEN;
	packet->is_tcp = fast_opaque(0);
	if (ether[6] == bpf_htons(ETH_P_IP)) {
		if (!fast_parse_ip4(packet->l3, end, bytes - ETH_HLEN, packet))
			return 0;
	} else if (ether[6] != bpf_htons(ETH_P_IPV6) ||
		   !fast_parse_ip6(packet->l3, end, bytes - ETH_HLEN, packet)) {
		return 0;
	}
	packet->pseudo += bpf_htons(packet->proto) + bpf_htons(packet->len);
	packet->key.kind = (packet->is_ip4 ? 4 : 6) | (__u32)packet->proto << 8;
	if (packet->proto == IPPROTO_TCP)
		return fast_parse_tcp(end, packet);
	if (packet->proto == IPPROTO_UDP)
		return fast_parse_udp(end, packet);
	if (packet->proto == IPPROTO_ICMP && packet->is_ip4)
		return fast_parse_echo(end, packet, 8, 0);
	if (packet->proto == IPPROTO_ICMPV6 && !packet->is_ip4)
		return fast_parse_echo(end, packet, ICMPV6_ECHO_REQUEST, ICMPV6_ECHO_REPLY);
	return 0;
}

/* Whether packets with this source must not be forwarded: multicast and reserved, this network, loopback,
 * link-local IPv6, a mapped IPv4 address, or the destination itself. As is_martian4() and is_martian6() of
 * the engine, which learns no entry for destinations that it does not forward to. */
static __always_inline int fast_is_martian(const struct fast_packet *packet)
{
	const __be32 *src = packet->key.src, *dst = packet->key.dst;
	__u32 first = bpf_ntohl(src[0]);

	if (packet->is_ip4)
		return first >> 29 == 7 || first >> 24 == 0 || first >> 24 == 127 || src[0] == dst[0];
	if (((src[0] ^ dst[0]) | (src[1] ^ dst[1]) | (src[2] ^ dst[2]) | (src[3] ^ dst[3])) == 0)
		return 1;
	if ((src[0] | src[1]) == 0 && (src[2] == bpf_htonl(0xffff) || (src[2] == 0 && bpf_ntohl(src[3]) <= 1)))
		return 1;
	return first >> 24 == 0xff || first >> 22 == 0x3fa;
}

#endif
