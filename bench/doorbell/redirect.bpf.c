// Carries descriptors from one loopback socket to another: SK_MSG with a sockmap and a filter map.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
    __uint(type, BPF_MAP_TYPE_SOCKMAP);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u64);
} sockets SEC(".maps");

// Who may send to whom: the local port of the sender, and the number of the receiver.
struct pair {
    __u32 port, receiver;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 2);
    __type(key, struct pair);
    __type(value, __u64);
} filter SEC(".maps");

SEC("sk_msg")
int redirect(struct sk_msg_md *msg)
{
    __u32 *data = (void *)(long)msg->data;
    struct pair pair = { .port = msg->local_port };
    __u64 *passed;

    if ((void *)(data + 1) > (void *)(long)msg->data_end)
        return SK_DROP;
    pair.receiver = *data;
    passed = bpf_map_lookup_elem(&filter, &pair);
    if (!passed)
        return SK_DROP;
    *passed += 1;
    return bpf_msg_redirect_map(msg, &sockets, pair.receiver, BPF_F_INGRESS);
}

char _license[] SEC("license") = "GPL";
