/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast path: its maps, and the lookup of a key.
 *
 * The process writes the maps on other CPUs while the program runs, without locks. An index entry is a hint:
 * the slot that a lane leads to counts only if its whole key equals the packet's. A slot's `version` shows
 * whether it was written during a read (loads and stores are in program order, as on x86). Lanes are read and
 * written as a whole. At worst, a flow is not found, and its packet goes to the socket.
 */
#ifndef MMB_FAST_TABLE_H
#define MMB_FAST_TABLE_H

/* The maps, which all ports share. The loader creates them and maps them into its memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, STEER_FAST_BUCKETS);
	__type(key, __u32);
	__type(value, struct fast_bucket);
} fast_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, STEER_FAST_SLOTS);
	__type(key, __u32);
	__type(value, struct fast_slot);
} fast_slots SEC(".maps");

/* The hash of a key. Two different keys have the same sum for at most one choice of secrets in 2^32: a
 * difference in one word is multiplied by the sum of the other word of its pair and that word's secret.
 * The final steps are bijective. */
static __always_inline __u64 fast_hash(const struct fast_key *key, const volatile __u32 *secrets)
{
	const __u32 *words = (const void *)key;
	__u64 hash, i;

	hash = ((__u64)key->kind + secrets[10]) * secrets[11];
#pragma unroll
	for (i = 0; i < 10; i += 2)
		hash += ((__u64)words[i] + secrets[i]) * ((__u64)words[i + 1] + secrets[i + 1]);
	hash = (hash ^ hash >> 32) * STEER_FAST_MIX;
	return hash ^ hash >> 32;
}

/* The slot, if it holds an action in force for a key; copies the action. Otherwise NULL. Not inlined: it
 * is called for every lane, but hardly ever runs more than once for a packet. */
static __noinline struct fast_slot *fast_check_slot(__u32 number, const struct fast_key *key, __u64 stamp,
						    struct fast_action *action)
{
	const __u32 *wanted = (const void *)key, *found;
	struct fast_slot *slot = bpf_map_lookup_elem(&fast_slots, &number);
	__u32 version, other = 0, i;

	if (slot == NULL)
		return NULL;
	version = *(volatile __u32 *)&slot->version;
	barrier();
	found = (const void *)&slot->key;
#pragma unroll
	for (i = 0; i < sizeof(*key) / 4; i++)
		other |= wanted[i] ^ found[i];
	*action = slot->action;
	barrier();
	if ((version & 1) != 0 || *(volatile __u32 *)&slot->version != version)
		return NULL;
	return other == 0 && action->stamp == stamp ? slot : NULL;
}

/* Looks up a key in one of its two buckets. */
static __always_inline struct fast_slot *
fast_lookup_bucket(__u32 number, __u64 tag, const struct fast_key *key, __u64 stamp,
                   struct fast_action *action)
{
	const struct fast_bucket *bucket;
	struct fast_slot *slot;
	__u64 lane, i;

	number &= STEER_FAST_BUCKETS - 1;
	bucket = bpf_map_lookup_elem(&fast_index, &number);
	if (bucket == NULL)
		return NULL;
#pragma unroll
	for (i = 0; i < STEER_FAST_LANES; i++) {
		lane = *(volatile const __u64 *)&bucket->lanes[i];
		if (lane >> 32 == tag && (slot = fast_check_slot(lane, key, stamp, action)) != NULL)
			return slot;
	}
	return NULL;
}

/* Looks up a key. Copies the action in force and returns its slot, or NULL. A key may have two slots, one
 * of which is revoked, so every lane with the key's tag is followed. */
static __always_inline struct fast_slot *
fast_lookup(const struct fast_key *key, const volatile __u32 *secrets, __u64 stamp,
            struct fast_action *action)
{
	__u64 hash = fast_hash(key, secrets);
	struct fast_slot *slot = fast_lookup_bucket(hash, hash >> 32, key, stamp, action);

	return slot != NULL ? slot : fast_lookup_bucket(hash >> 16, hash >> 32, key, stamp, action);
}

/* Looks up the pair of a packet's addresses, then its flow. Returns as fast_lookup(). */
static __always_inline struct fast_slot *
fast_lookup_any(struct fast_key *key, const volatile __u32 *secrets, __u64 stamp,
                struct fast_action *action)
{
	__u64 in_force = stamp & ~(__u64)STEER_FAST_PAIRS;
	__u32 ports = key->ports;
	struct fast_slot *slot;

	if (stamp & STEER_FAST_PAIRS) {
		key->ports = 0;
		key->kind |= STEER_FAST_PAIR;
		slot = fast_lookup(key, secrets, in_force, action);
		if (slot != NULL)
			return slot;
		key->ports = ports;
		key->kind &= ~STEER_FAST_PAIR;
	}
	return fast_lookup(key, secrets, in_force, action);
}

#endif
