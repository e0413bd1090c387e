/* SPDX-License-Identifier: Apache-2.0
 *
 * The program of a routed af-packet port at the ingress of its interface.
 *
 * The kernel gives each packet to the port's socket first, and to its own stack afterwards. The interface of
 * a routed port has no addresses and does not forward: the twin of the port has the addresses, and the engine
 * forwards. So the stack would look for a route only to drop the packet. This program drops it before. Frames
 * that are not IP, that have a VLAN tag, or that are not addressed to the interface go on, for what else may
 * stand on it.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The next program, or the kernel's stack (enum tcx_action_base). */
#define NEXT -1

SEC("tc")
int discard(struct __sk_buff *skb)
{
	if (skb->pkt_type != PACKET_HOST || skb->vlan_present)
		return NEXT;
	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return NEXT;
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Apache-2.0";
