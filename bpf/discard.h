/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel's stack has no use for at a routed af-packet port.
 *
 * The kernel gives each packet to the port's socket first, and to its own stack afterwards. The interface of
 * a routed port has no addresses and does not forward: the twin of the port has the addresses, and the engine
 * forwards. So the stack would look for a route only to drop the packet. Frames that are not IP, that have a
 * VLAN tag, or that are not addressed to the interface go on, for what else may stand on it.
 */
#ifndef MMB_DISCARD_H
#define MMB_DISCARD_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Whether only the engine of a routed port needs a packet. */
static __always_inline int is_for_engine_alone(const struct __sk_buff *skb)
{
	if (skb->pkt_type != PACKET_HOST || skb->vlan_present)
		return 0;
	return skb->protocol == bpf_htons(ETH_P_IP) || skb->protocol == bpf_htons(ETH_P_IPV6);
}

#endif
