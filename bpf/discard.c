/* SPDX-License-Identifier: Apache-2.0
 *
 * The program of a routed af-packet port at the ingress of its interface, while the programs of the fast path
 * (tc.c) are not there: it drops what the port's socket has received and the kernel's stack has no use for.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#include "discard.h"

/* The next program, or the kernel's stack (enum tcx_action_base). */
#define NEXT -1

SEC("tc")
int discard(struct __sk_buff *skb)
{
	return is_for_engine_alone(skb) ? TC_ACT_SHOT : NEXT;
}

char LICENSE[] SEC("license") = "Apache-2.0";
