// Lets every frame pass. In memory: what the network stack does with it is what is measured; on the wire: a
// router.
#include "frame.h"

SEC("xdp") int program(struct xdp_md *ctx) {
  struct five five;
  return take(ctx, &five) ? let_pass(ctx) : OTHERWISE;
}

char _license[] SEC("license") = "GPL";
