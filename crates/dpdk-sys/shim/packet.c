/* SPDX-License-Identifier: Apache-2.0
 *
 * What DPDK 22.11's AF_PACKET driver asks of the kernel and must not.
 *
 * It always joins a fan-out group with PACKET_FANOUT_FLAG_DEFRAG, so that the kernel puts IPv4 fragments together: a
 * single fragment never arrives, and what does arrive is longer than the MTU. A group is of no use to a port with one
 * queue. What such a port does need is not to be shown the frames that the kernel itself sends out of the interface,
 * which the driver does not ask for, and which has no effect on a member of a group. So that is asked for instead.
 *
 * The build makes a copy of the driver's library in which setsockopt has this function's name.
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
