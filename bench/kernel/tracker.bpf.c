// The flow tracker that the paper compares itself with (mmb, extended, section 4.3.3): three hash maps, for
// flows, for three-tuple rules that say which flows are tracked, and for five-tuple rules. A tracked flow's
// entry has the time, the flags that were seen from both ends, counters and the interface.
#include "frame.h"

struct three {
  __be32 saddr;
  __be16 dport;
  __u8 proto, zero;
};

struct flow {
  __u64 first, last;
  __u64 packets, bytes;
  __u32 interface;
  __u8 flags[2], reply, zero;
};

#define RULES(name, key_type)                \
  struct {                                   \
    __uint(type, BPF_MAP_TYPE_HASH);         \
    __uint(max_entries, 1 << 21);            \
    __uint(map_flags, BPF_F_NO_PREALLOC);    \
    __type(key, key_type);                   \
    __type(value, __u64);                    \
  } name SEC(".maps")

RULES(rules, struct five);
RULES(tracked, struct three);

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1 << 21);
  __type(key, struct five);
  __type(value, struct flow);
} flows SEC(".maps");

SEC("xdp") int program(struct xdp_md *ctx) {
  struct five five;
  if (!take(ctx, &five))
    return OTHERWISE;
  // Both directions have one key.
  struct five key = five;
  int reply = five.saddr > five.daddr;
  if (reply)
    key = (struct five){five.daddr, five.saddr, five.dport, five.sport, five.proto};
  __u64 now = bpf_ktime_get_ns();
  struct flow *flow = bpf_map_lookup_elem(&flows, &key);
  if (flow) {
    flow->last = now;
    flow->packets++;
    flow->bytes += ctx->data_end - ctx->data;
    flow->reply |= reply;
    return let_pass(ctx);
  }
  struct three three = {five.saddr, five.dport, five.proto, 0};
  if (!bpf_map_lookup_elem(&rules, &five) && !bpf_map_lookup_elem(&tracked, &three))
    return let_pass(ctx);
  struct flow new = {now, now, 1, ctx->data_end - ctx->data, ctx->ingress_ifindex, {0}, reply, 0};
  bpf_map_update_elem(&flows, &key, &new, BPF_ANY);
  return let_pass(ctx);
}

char _license[] SEC("license") = "GPL";
