/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast path at XDP: ones' complement sums of frames (RFC 1071).
 */
#ifndef MMB_FAST_CHECKSUM_H
#define MMB_FAST_CHECKSUM_H

/* Where transport headers stand at most, and the bytes that are summed at most. */
#define FAST_FROM_MAX (ETH_HLEN + sizeof(struct ipv6hdr))
#define FAST_SUM_MAX 16383

/* Adds `size` bytes at `at` to a ones' complement sum; negative: they are outside the frame. */
static __always_inline __s64 fast_add(void *at, void *end, __u32 size, __s64 sum)
{
	/* Keeps the compared and the accessed pointer in one register, or the verifier rejects the access. */
	barrier_var(at);
	return at + size > end ? -1 : bpf_csum_diff(NULL, 0, at, size, sum);
}

/* Sums `len` bytes of the frame from offset `from` on; negative: they are outside the frame.
 *
 * A global function, so that the verifier checks it once and not for every path of its caller. Every piece
 * is located from the frame's start for the same reason. Older kernels sum at most 512 bytes in a call. */
__noinline __s64 fast_sum(struct xdp_md *context, __u64 from, __u64 len)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end, *at;
	__u64 size, i;
	__s64 sum = 0;

	if (from > FAST_FROM_MAX || len > FAST_SUM_MAX)
		return -1;
	data += from;
	for (i = 0; i < len / 512 && sum >= 0; i++)
		sum = fast_add(data + i * 512, end, 512, sum);
#pragma unroll
	for (size = 256; size >= 4; size /= 2)
		if ((len & size) != 0 && sum >= 0)
			sum = fast_add(data + (len & -(2 * size)), end, size, sum);
	at = data + (len & -4);
	barrier_var(at);
	if ((len & 2) != 0 && sum >= 0)
		sum = at + 2 > end ? -1 : sum + *(__u16 *)at;
	at = data + (len & -2);
	barrier_var(at);
	/* The first byte of a word whose second byte is 0. */
	if ((len & 1) != 0 && sum >= 0)
		sum = at + 1 > end ? -1 : sum + *(__u8 *)at;
	return sum;
}

#endif
