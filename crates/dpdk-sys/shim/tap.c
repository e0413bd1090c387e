/* SPDX-License-Identifier: Apache-2.0
 *
 * The MTU of a tap.
 *
 * DPDK 22.11's tap driver does not send packets longer than the MTU that DPDK knows of the port, nor the
 * packets behind them in the burst. It reports 1,500 as its maximum, so that DPDK refuses a larger MTU. But
 * the interface belongs to the kernel, where its MTU can be set to any value. So this function writes the
 * number that the driver checks: in all releases of 22.11, the driver's send queue starts with its kind and a
 * pointer to that number.
 */
#include "shim.h"

#include <errno.h>

int mmb_tap_set_mtu(uint16_t port, uint16_t mtu)
{
	const struct {
		int kind;
		uint16_t *mtu;
	} *queue;
	uint16_t known;

	if (port >= RTE_MAX_ETHPORTS || rte_eth_dev_get_mtu(port, &known) != 0 || rte_eth_fp_ops[port].txq.data == NULL)
		return -ENODEV;
	queue = rte_eth_fp_ops[port].txq.data[0];
	if (queue == NULL || queue->mtu == NULL || *queue->mtu != known)
		return -ENOTSUP;
	__atomic_store_n(queue->mtu, mtu, __ATOMIC_RELAXED);
	return 0;
}
