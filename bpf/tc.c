/* SPDX-License-Identifier: Apache-2.0
 *
 * The programs of af-packet ports with the fast path.
 *
 * The kernel gives a packet first to the port's socket (accept), then to tc (ingress), which forwards it or
 * not (fast_tc.h). A packet must not go both ways, so it is decided once, by `ingress`: the socket refuses a
 * packet at first; `ingress` lets the interface receive packets for the engine a second time, with a mark.
 * With the mark, the socket accepts the packet. Then the kernel's stack gets it, unless the port is routed
 * and the stack has no use for it (discard.h).
 *
 * Packets for the machine itself need not pass through the engine. If `twin` is set, `ingress` gives them to
 * the twin of the port, which has the machine's addresses, and `from_twin` sends what the twin sends.
 *
 * The engine takes buffers of many segments whole (crates/dpdk/src/port/packet).
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>

#include <stddef.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "discard.h"
#include "fast_tc.h"
#include "local.h"
#include "steer.h"

/* The next program, or the kernel's stack (enum tcx_action_base). */
#define NEXT -1

/* Written by user space, which maps it into its memory. */
volatile struct tc_state state;

/* The value of `engaged` that `accept` has used for the packet that `ingress` gets next on this CPU, so that
 * both agree while it changes. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} seen SEC(".maps");

/* Whether the port's socket gets a packet. */
SEC("socket")
int accept(struct __sk_buff *skb)
{
	__u32 first = 0, *engaged = bpf_map_lookup_elem(&seen, &first);

	if (engaged == NULL)
		return 0;
	*engaged = state.engaged;
	return *engaged == 0 || skb->mark == STEER_TC_MARK ? -1 : 0;
}

/* Whether a packet is for the machine. */
static __always_inline int is_for_machine(const struct __sk_buff *skb)
{
	const void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u64 gate = state.steer.gate;

	return gate != 0 && !skb->vlan_present && data + ETH_HLEN <= end && gate_admits(gate, data) &&
	       is_local(data, end);
}

/* Counts a packet and redirects it to another interface. */
static __always_inline int redirect(struct __sk_buff *skb, __u32 to, __u64 flags,
				    volatile struct tc_traffic *traffic)
{
	__sync_fetch_and_add(&traffic->packets, skb->gso_segs > 1 ? skb->gso_segs : 1);
	__sync_fetch_and_add(&traffic->bytes, skb->len);
	return bpf_redirect(to, flags);
}

/* At the ingress of the port's interface. */
SEC("tc")
int ingress(struct __sk_buff *skb)
{
	const __u32 *engaged;
	__u32 first = 0, twin;

	if (skb->mark == STEER_TC_MARK) {
		skb->mark = 0;
		return state.steer.gate != 0 && is_for_engine_alone(skb) ? TC_ACT_SHOT : NEXT;
	}
	engaged = bpf_map_lookup_elem(&seen, &first);
	if (engaged == NULL || *engaged == 0)
		return NEXT;
	if (fast_forward(skb, &state.steer))
		return TC_ACT_REDIRECT;
	/* Read once: it may become 0. */
	twin = state.twin;
	if (twin != 0 && is_for_machine(skb))
		return redirect(skb, twin, BPF_F_INGRESS, &state.to_twin);
	fast_learn_peer(skb, &state.steer);
	skb->mark = STEER_TC_MARK;
	return bpf_redirect(state.if_index, BPF_F_INGRESS);
}

/* At the egress of the port's twin. */
SEC("tc")
int from_twin(struct __sk_buff *skb)
{
	return redirect(skb, state.if_index, 0, &state.from_twin);
}

char LICENSE[] SEC("license") = "Apache-2.0";
