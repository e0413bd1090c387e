// Drops every frame: what a run itself costs.
#include "frame.h"

SEC("xdp") int program(struct xdp_md *ctx) {
  struct five five;
  return take(ctx, &five) ? XDP_DROP : OTHERWISE;
}

char _license[] SEC("license") = "GPL";
