/* SPDX-License-Identifier: Apache-2.0
 *
 * The XDP program of veth interfaces from which an af-packet port reads frames: passes every frame to the
 * kernel's stack.
 *
 * Its presence makes the kernel cut TCP segments to the MTU before they reach the interface. The kernel
 * strips the outer VLAN tag of a frame and DPDK's driver restores every tag as a customer tag. So a service
 * tag's ethertype is replaced by a placeholder, which the kernel does not strip and the engine turns back.
 *
 * Compiled with PASS_FRAGS, the program takes frames of several fragments, which a jumbo MTU needs (Linux
 * 5.18).
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "pass.h"

#ifdef PASS_FRAGS
SEC("xdp.frags")
#else
SEC("xdp")
#endif
int pass(struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	__be16 *ethertype = data + 2 * ETH_ALEN;

	if (data + ETH_HLEN <= end && *ethertype == bpf_htons(PASS_SERVICE_TAG))
		*ethertype = bpf_htons(PASS_SERVICE_TAG_PLACEHOLDER);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Apache-2.0";
