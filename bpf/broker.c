/* SPDX-License-Identifier: Apache-2.0
 *
 * The socket lookup of the network namespace of transparent brokers: a TCP connection to any address that
 * comes in by an interface is accepted by the socket that the map has for the interface.
 *
 * The field ingress_ifindex needs Linux 5.17.
 */
#include <linux/bpf.h>
#include <linux/in.h>

#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} sockets SEC(".maps");

SEC("sk_lookup")
int choose(struct bpf_sk_lookup *context)
{
	__u32 interface = context->ingress_ifindex;
	struct bpf_sock *socket;

	if (context->protocol != IPPROTO_TCP)
		return SK_PASS;
	socket = bpf_map_lookup_elem(&sockets, &interface);
	if (!socket)
		return SK_PASS;
	/* A socket that does not listen any more is refused. Then the client gets a reset. */
	bpf_sk_assign(context, socket, 0);
	bpf_sk_release(socket);
	return SK_PASS;
}

char LICENSE[] SEC("license") = "Apache-2.0";
