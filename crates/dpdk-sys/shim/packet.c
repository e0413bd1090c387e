/* SPDX-License-Identifier: Apache-2.0
 *
 * Lets DPDK 22.11's AF_PACKET driver send only.
 *
 * A socket of the port's own receives (crates/dpdk/src/port/packet): the driver knows no virtio-net headers,
 * and takes every VLAN tag for a customer tag. A socket that is bound to protocol 0 receives nothing. The
 * driver would also join a fan-out group, in which the kernel reassembles IPv4 fragments.
 *
 * The build copies the driver's library and renames its calls of setsockopt and bind to these functions.
 */
#include <linux/if_packet.h>
#include <string.h>
#include <sys/socket.h>

int mmb_packet_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int mmb_packet_bind(int fd, const struct sockaddr *address, socklen_t len);

int mmb_packet_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	if (level == SOL_PACKET && name == PACKET_FANOUT)
		return 0;
	return setsockopt(fd, level, name, value, len);
}

int mmb_packet_bind(int fd, const struct sockaddr *address, socklen_t len)
{
	struct sockaddr_ll silent;

	if (len != sizeof(silent) || address->sa_family != AF_PACKET)
		return bind(fd, address, len);
	memcpy(&silent, address, sizeof(silent));
	silent.sll_protocol = 0;
	return bind(fd, (const struct sockaddr *)&silent, sizeof(silent));
}
