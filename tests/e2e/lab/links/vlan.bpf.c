// Puts a kernel end point into a VLAN (QinQ: into two), also where the kernel has no VLAN interfaces:
// attached to an interface with tc, it tags what leaves and untags what arrives.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define OUTER_TAG 10
#define INNER_TAG 20
#ifdef QINQ
#define OUTER_TYPE 0x88a8
#else
#define OUTER_TYPE 0x8100
#endif

static int has_tag(struct __sk_buff *packet, int type, int tag)
{
	return packet->vlan_present && packet->vlan_proto == bpf_htons(type) && (packet->vlan_tci & 0xfff) == tag;
}

SEC("tc/out")
int vlan_out(struct __sk_buff *packet)
{
#ifdef QINQ
	if (bpf_skb_vlan_push(packet, bpf_htons(0x8100), INNER_TAG))
		return TC_ACT_SHOT;
#endif
	return bpf_skb_vlan_push(packet, bpf_htons(OUTER_TYPE), OUTER_TAG) ? TC_ACT_SHOT : TC_ACT_OK;
}

SEC("tc/in")
int vlan_in(struct __sk_buff *packet)
{
	// What lost its tag on the way does not belong here: the test must see that it is missing.
	if (!has_tag(packet, OUTER_TYPE, OUTER_TAG) || bpf_skb_vlan_pop(packet))
		return TC_ACT_SHOT;
#ifdef QINQ
	if (!has_tag(packet, 0x8100, INNER_TAG) || bpf_skb_vlan_pop(packet))
		return TC_ACT_SHOT;
#endif
	return TC_ACT_OK;
}

char _license[] SEC("license") = "Apache-2.0";
