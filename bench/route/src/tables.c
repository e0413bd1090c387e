/* rte_fib and rte_lpm behind a few functions without pointers: routes and addresses go in one by one, and
 * live here. One thread. The layout is that of examples/l3fwd: DIR24_8 with next hops of 4 bytes; 2 bytes,
 * which are enough for most, are measured as well. */

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_lpm.h>
#include <rte_memory.h>

#define VECTOR 256

static struct rte_fib *fib;
static struct rte_lpm *lpm;
static uint32_t *addresses;
static uint32_t *results;
static uint32_t room;

/* Room for so many addresses. */
int tables_room(uint32_t count)
{
	free(addresses);
	free(results);
	addresses = calloc(count, sizeof(*addresses));
	results = calloc(count, sizeof(*results));
	room = addresses && results ? count : 0;
	return room == count ? 0 : -ENOMEM;
}

int tables_address(uint32_t number, uint32_t address)
{
	if (number >= room)
		return -EINVAL;
	addresses[number] = address;
	return 0;
}

/* An empty rte_fib in the place of the one before, with next hops of 2 or 4 bytes. */
int fib_new(uint32_t bytes, uint32_t routes, uint32_t groups)
{
	rte_fib_free(fib);
	struct rte_fib_conf conf = {.type = RTE_FIB_DIR24_8, .default_nh = 0, .max_routes = (int)routes};
	conf.dir24_8.nh_sz = bytes == 2 ? RTE_FIB_DIR24_8_2B : RTE_FIB_DIR24_8_4B;
	conf.dir24_8.num_tbl8 = groups;
	fib = rte_fib_create("bench", SOCKET_ID_ANY, &conf);
	return fib ? 0 : -rte_errno;
}

void fib_end(void)
{
	rte_fib_free(fib);
	fib = NULL;
}

int fib_route(uint32_t address, uint32_t length, uint32_t hop)
{
	return rte_fib_add(fib, address, (uint8_t)length, hop);
}

/* Chooses an implementation (enum rte_fib_lookup_type); fails where the CPU or the build lacks it. */
int fib_choose(uint32_t type)
{
	return rte_fib_select_lookup(fib, (enum rte_fib_lookup_type)type);
}

/* An empty rte_lpm in the place of the one before. */
int lpm_new(uint32_t routes, uint32_t groups)
{
	rte_lpm_free(lpm);
	struct rte_lpm_config config = {.max_rules = routes, .number_tbl8s = groups};
	lpm = rte_lpm_create("bench", SOCKET_ID_ANY, &config);
	return lpm ? 0 : -rte_errno;
}

void lpm_end(void)
{
	rte_lpm_free(lpm);
	lpm = NULL;
}

int lpm_route(uint32_t address, uint32_t length, uint32_t hop)
{
	return rte_lpm_add(lpm, address, (uint8_t)length, hop);
}

/* Brings addresses into the cache, as those of packets that have just been parsed are. */
static uint32_t *hot(uint32_t first, uint32_t count)
{
	static uint32_t copy[VECTOR];
	if (count > VECTOR || first > room || count > room - first)
		return NULL;
	memcpy(copy, addresses + first, count * sizeof(*copy));
	return copy;
}

/* Looks the addresses from `first` on up, at most a vector of them, and returns the clock ticks it took. */
uint64_t fib_lookup(uint32_t first, uint32_t count)
{
	static uint64_t hops[VECTOR];
	uint32_t *of = hot(first, count);
	if (!of)
		return 0;
	uint64_t start = rte_rdtsc_precise();
	rte_fib_lookup_bulk(fib, of, hops, (int)count);
	uint64_t ticks = rte_rdtsc_precise() - start;
	for (uint32_t i = 0; i < count; i++)
		results[first + i] = (uint32_t)hops[i];
	return ticks;
}

/* The same by rte_lpm_lookup_bulk, or four at a time, as ip4_lookup and l3fwd do on x86. */
uint64_t lpm_lookup(uint32_t first, uint32_t count, uint32_t by_four)
{
	static uint32_t hops[VECTOR];
	uint32_t *of = hot(first, count);
	if (!of)
		return 0;
	uint64_t start = rte_rdtsc_precise();
	if (by_four && count % 4 == 0)
		for (uint32_t i = 0; i < count; i += 4)
			rte_lpm_lookupx4(lpm, _mm_loadu_si128((__m128i *)(of + i)), hops + i, 0);
	else
		rte_lpm_lookup_bulk(lpm, of, hops, count);
	uint64_t ticks = rte_rdtsc_precise() - start;
	for (uint32_t i = 0; i < count; i++)
		results[first + i] = hops[i] & (RTE_LPM_LOOKUP_SUCCESS - 1);
	return ticks;
}

/* The next hop that the last lookup of an address gave; 0: none. */
uint32_t tables_result(uint32_t number)
{
	return number < room ? results[number] : 0;
}
