// What the programs here have in common. In memory, each run of a program makes the one frame that there is
// into a packet of the next flow; on the wire (ON_WIRE), packets come and are forwarded.
#pragma once
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// Set before loading: how many flows there are, less one (a power of two, less one); where frames are sent
// to.
struct {
  __u32 flows_mask;
  unsigned char mac[ETH_ALEN];
} settings SEC(".data.settings") = {1023};
// The next flow.
__u32 turn;

struct five {
  __be32 saddr, daddr;
  __be16 sport, dport;
  __u8 proto, zero[3];
};

// An Ethernet, IPv4, and UDP or TCP header, or 0.
static __always_inline struct iphdr *parse(struct xdp_md *ctx, struct five *five) {
  void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
  struct ethhdr *eth = data;
  struct iphdr *ip = (void *)(eth + 1);
  struct udphdr *l4 = (void *)(ip + 1);
  if ((void *)(l4 + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5)
    return 0;
  if (ip->protocol != IPPROTO_UDP && ip->protocol != IPPROTO_TCP)
    return 0;
  *five = (struct five){ip->saddr, ip->daddr, l4->source, l4->dest, ip->protocol};
  return ip;
}

#ifdef ON_WIRE
// Frames are taken as they come; what a program lets pass is forwarded by the kernel's routes and neighbours,
// without its stack, as the kernel's own sample of a router does.
struct {
  __uint(type, BPF_MAP_TYPE_DEVMAP);
  __uint(max_entries, 64);
  __type(key, __u32);
  __type(value, __u32);
} devices SEC(".maps");

static __always_inline int take(struct xdp_md *ctx, struct five *five) { return parse(ctx, five) != 0; }

static __always_inline int let_pass(struct xdp_md *ctx) {
  void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
  struct ethhdr *eth = data;
  struct iphdr *ip = (void *)(eth + 1);
  if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP))
    return XDP_PASS;
  struct bpf_fib_lookup fib = {
      .family = 2, /* AF_INET */
      .tos = ip->tos,
      .l4_protocol = ip->protocol,
      .tot_len = bpf_ntohs(ip->tot_len),
      .ipv4_src = ip->saddr,
      .ipv4_dst = ip->daddr,
      .ifindex = ctx->ingress_ifindex,
  };
  if (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS)
    return XDP_PASS;
  __u32 check = ip->check + bpf_htons(0x0100);
  ip->check = check + (check >= 0xffff);
  ip->ttl--;
  __builtin_memcpy(eth->h_dest, fib.dmac, ETH_ALEN);
  __builtin_memcpy(eth->h_source, fib.smac, ETH_ALEN);
  return bpf_redirect_map(&devices, fib.ifindex, XDP_PASS);
}

#define OTHERWISE let_pass(ctx)
#else
// Writes the next flow's addresses and ports over the frame's, as the kernel may have sent this very page on
// before. Sources are 10.1.1.0 and on, destinations 10.2.0.2. Checksums of the transport header are not set.
static __always_inline int take(struct xdp_md *ctx, struct five *five) {
  struct iphdr *ip = parse(ctx, five);
  if (!ip)
    return 0;
  struct ethhdr *eth = (void *)(long)ctx->data;
  struct udphdr *l4 = (void *)(ip + 1);
  __u32 flow = turn++ & settings.flows_mask;
  __builtin_memcpy(eth->h_dest, settings.mac, ETH_ALEN);
  ip->ttl = 64;
  ip->check = 0;
  ip->saddr = bpf_htonl(0x0a010100 + (flow >> 4));
  l4->source = bpf_htons(1024 + (flow * 40503 & 0x7fff));
  __u32 sum = 0;
  __u16 *word = (void *)ip;
#pragma unroll
  for (int i = 0; i < 10; i++)
    sum += word[i];
  sum = (sum & 0xffff) + (sum >> 16);
  ip->check = ~(sum + (sum >> 16));
  five->saddr = ip->saddr;
  five->sport = l4->source;
  return 1;
}

static __always_inline int let_pass(struct xdp_md *ctx) { return XDP_PASS; }

#define OTHERWISE XDP_ABORTED
#endif
