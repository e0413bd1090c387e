/* rte_acl behind a few functions without pointers: rules and packets go in one by one, and live here. One
 * thread.
 *
 * The layout of the input is the one the library's guide recommends for IPv4 five-tuples: the protocol first,
 * then groups of four bytes in network byte order, the two ports in one group. One category. */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_acl.h>
#include <rte_byteorder.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_vect.h>

#define VECTOR 256

struct key {
	uint8_t protocol;
	uint8_t unused[3];
	uint32_t source;
	uint32_t destination;
	uint16_t source_port;
	uint16_t destination_port;
};

enum { PROTOCOL, SOURCE, DESTINATION, SOURCE_PORT, DESTINATION_PORT, FIELDS };

RTE_ACL_RULE_DEF(rule, FIELDS);

static const struct rte_acl_field_def fields[FIELDS] = {
	{RTE_ACL_FIELD_TYPE_BITMASK, 1, PROTOCOL, 0, offsetof(struct key, protocol)},
	{RTE_ACL_FIELD_TYPE_MASK, 4, SOURCE, 1, offsetof(struct key, source)},
	{RTE_ACL_FIELD_TYPE_MASK, 4, DESTINATION, 2, offsetof(struct key, destination)},
	{RTE_ACL_FIELD_TYPE_RANGE, 2, SOURCE_PORT, 3, offsetof(struct key, source_port)},
	{RTE_ACL_FIELD_TYPE_RANGE, 2, DESTINATION_PORT, 3, offsetof(struct key, destination_port)},
};

static struct rte_acl_ctx *acl;
static struct key *keys;
static uint32_t *results;
static uint32_t packets;

/* Starts DPDK with `megabytes` of memory, in huge pages or ordinary ones, and room for rules and packets. */
int acl_start(uint32_t megabytes, uint32_t huge, uint32_t rules, uint32_t room)
{
	char memory[16];
	snprintf(memory, sizeof(memory), "%u", megabytes);
	char *arguments[] = {"acl", huge ? "--in-memory" : "--no-huge", "--no-pci", "--no-telemetry", "--no-shconf",
			     "--log-level=3", "--force-max-simd-bitwidth=512", "-l", "0", "-m", memory};
	int count = (int)RTE_DIM(arguments);
	if (rte_eal_init(count, arguments) < 0)
		return -rte_errno;
	struct rte_acl_param param = {
		.name = "bench", .socket_id = SOCKET_ID_ANY, .rule_size = RTE_ACL_RULE_SZ(FIELDS), .max_rule_num = rules};
	acl = rte_acl_create(&param);
	keys = calloc(room, sizeof(*keys));
	results = calloc(room, sizeof(*results));
	packets = keys && results ? room : 0;
	return acl && packets == room ? 0 : -ENOMEM;
}

/* Adds a rule; `number` (from 1) is what a match gives, and the rule with the lowest wins. */
int acl_rule(uint32_t number, uint32_t source, uint32_t source_bits, uint32_t destination, uint32_t destination_bits,
	     uint32_t source_ports, uint32_t destination_ports, uint32_t protocol, uint32_t protocol_mask)
{
	struct rule rule = {
		.data = {.category_mask = 1, .priority = RTE_ACL_MAX_PRIORITY - (int32_t)number, .userdata = number}};
	rule.field[PROTOCOL].value.u8 = (uint8_t)protocol;
	rule.field[PROTOCOL].mask_range.u8 = (uint8_t)protocol_mask;
	rule.field[SOURCE].value.u32 = source;
	rule.field[SOURCE].mask_range.u32 = source_bits;
	rule.field[DESTINATION].value.u32 = destination;
	rule.field[DESTINATION].mask_range.u32 = destination_bits;
	rule.field[SOURCE_PORT].value.u16 = source_ports >> 16;
	rule.field[SOURCE_PORT].mask_range.u16 = source_ports & 0xffff;
	rule.field[DESTINATION_PORT].value.u16 = destination_ports >> 16;
	rule.field[DESTINATION_PORT].mask_range.u16 = destination_ports & 0xffff;
	return rte_acl_add_rules(acl, (const struct rte_acl_rule *)&rule, 1);
}

int acl_packet(uint32_t number, uint32_t source, uint32_t destination, uint32_t ports, uint32_t protocol)
{
	if (number >= packets)
		return -EINVAL;
	keys[number] = (struct key){
		.protocol = (uint8_t)protocol,
		.source = rte_cpu_to_be_32(source),
		.destination = rte_cpu_to_be_32(destination),
		.source_port = rte_cpu_to_be_16(ports >> 16),
		.destination_port = rte_cpu_to_be_16(ports & 0xffff),
	};
	return 0;
}

/* Builds the run-time structures from the rules added so far. */
int acl_build(void)
{
	struct rte_acl_config config = {.num_categories = 1, .num_fields = FIELDS};
	memcpy(config.defs, fields, sizeof(fields));
	return rte_acl_build(acl, &config);
}

/* Chooses the implementation (enum rte_acl_classify_alg); fails where the CPU or the build lacks it. */
int acl_algorithm(uint32_t algorithm)
{
	return rte_acl_set_ctx_classify(acl, (enum rte_acl_classify_alg)algorithm);
}

uint64_t acl_ticks(void)
{
	return rte_rdtsc_precise();
}

/* Classifies the packets from `first` on, at most a vector of them, and returns the clock ticks it took. The
 * keys are brought into the cache before, as those of packets that have just been parsed are. */
uint64_t acl_classify(uint32_t first, uint32_t count)
{
	static struct key hot[VECTOR];
	const uint8_t *data[VECTOR];
	if (count > VECTOR || first > packets || count > packets - first)
		return 0;
	memcpy(hot, keys + first, count * sizeof(*hot));
	for (uint32_t i = 0; i < count; i++)
		data[i] = (const uint8_t *)&hot[i];
	uint64_t start = rte_rdtsc_precise();
	rte_acl_classify(acl, data, results + first, count, 1);
	return rte_rdtsc_precise() - start;
}

/* The number of the rule that the packet matched; 0: none. */
uint32_t acl_result(uint32_t packet)
{
	return packet < packets ? results[packet] : 0;
}
