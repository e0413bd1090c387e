// The far end of a link whose frames nobody wants.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp") int program(struct xdp_md *ctx) { return XDP_DROP; }

char _license[] SEC("license") = "GPL";
