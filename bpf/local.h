/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine's addresses.
 */
#ifndef MMB_LOCAL_H
#define MMB_LOCAL_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "steer.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, STEER_LOCAL_MAX);
	__type(key, __be32);
	__type(value, __u8);
} local4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, STEER_LOCAL_MAX);
	__type(key, struct in6_addr);
	__type(value, __u8);
} local6 SEC(".maps");

/* Whether an untagged frame, whose Ethernet header ends before `end`, has a packet to one of the
 * addresses. */
static __always_inline int is_local(const __u16 *ether, const void *end)
{
	const void *l3 = (const void *)ether + ETH_HLEN;
	const struct iphdr *ip4 = l3;
	const struct ipv6hdr *ip6 = l3;

	if (ether[6] == bpf_htons(ETH_P_IP) && (const void *)(ip4 + 1) <= end)
		return bpf_map_lookup_elem(&local4, &ip4->daddr) != NULL;
	if (ether[6] == bpf_htons(ETH_P_IPV6) && (const void *)(ip6 + 1) <= end)
		return bpf_map_lookup_elem(&local6, &ip6->daddr) != NULL;
	return 0;
}

#endif
