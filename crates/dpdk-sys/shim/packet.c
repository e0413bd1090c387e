/* SPDX-License-Identifier: Apache-2.0
 *
 * Corrects a socket option of DPDK 22.11's AF_PACKET driver.
 *
 * The driver always joins a fan-out group with PACKET_FANOUT_FLAG_DEFRAG, so that the kernel reassembles IPv4
 * fragments: a single fragment never arrives, and reassembled packets are longer than the MTU. A port with
 * one queue needs no group. It needs PACKET_IGNORE_OUTGOING instead, so that it does not receive the frames
 * that the kernel sends out of the interface. The driver does not set this option, and it has no effect on a
 * member of a group.
 *
 * The build copies the driver's library and renames its calls of setsockopt to this function.
 */
#include <linux/if_packet.h>
#include <sys/socket.h>

int mmb_packet_setsockopt(int fd, int level, int name, const void *value, socklen_t len);

int mmb_packet_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	const int yes = 1;

	if (level == SOL_PACKET && name == PACKET_FANOUT)
		return setsockopt(fd, level, PACKET_IGNORE_OUTGOING, &yes, sizeof(yes));
	return setsockopt(fd, level, name, value, len);
}
