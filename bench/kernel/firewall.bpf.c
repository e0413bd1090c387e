// The firewall that the paper compares itself with (mmb, extended, section 4.3.2): a hash map of five-tuples
// with a verdict and counters; what is in it is dropped or accepted, and counted, everything else passes.
#include "frame.h"

struct verdict {
  __u64 accept, packets;
};

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1 << 21);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct five);
  __type(value, struct verdict);
} rules SEC(".maps");

SEC("xdp") int program(struct xdp_md *ctx) {
  struct five five;
  if (!take(ctx, &five))
    return OTHERWISE;
  struct verdict *found = bpf_map_lookup_elem(&rules, &five);
  if (!found)
    return let_pass(ctx);
  found->packets++;
  return found->accept ? let_pass(ctx) : XDP_DROP;
}

char _license[] SEC("license") = "GPL";
