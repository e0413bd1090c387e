/* SPDX-License-Identifier: Apache-2.0
 *
 * The MTU of a tap.
 *
 * DPDK 22.11's tap driver does not send what is longer than the MTU that DPDK knows of the port, keeps back what is
 * behind it in the burst too, and says that 1,500 is the most, so that DPDK refuses to be told more. But the interface is
 * the kernel's, where anyone may set its MTU to what they like. So what the driver looks at is written here: its send
 * queue starts with its kind and a pointer to that number, in all releases of 22.11.
 */
#include "shim.h"

#include <errno.h>

int mmb_tap_follow_mtu(uint16_t port, uint16_t mtu)
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
