/* SPDX-License-Identifier: Apache-2.0
 *
 * Lets DPDK 22.11's AF_PACKET driver send only, and not wait.
 *
 * A socket of the port's own receives (crates/dpdk/src/port/vnet): the driver knows no virtio-net headers,
 * and takes every VLAN tag for a customer tag. A socket of protocol 0 receives nothing. It is created and
 * bound with 0: to the kernel, 0 in bind means the protocol that the socket was created with. Otherwise the
 * kernel would offer it a copy of each frame in both directions. The driver would also join a fan-out group,
 * in which the kernel reassembles IPv4 fragments.
 *
 * With a full ring, the driver would wait without end until the socket's send buffer has room. It is told
 * that there is none. When the kernel takes frames, it says how many bytes they have (tx.c).
 *
 * The build copies the driver's library and renames its calls of socket, setsockopt, bind, poll and sendto to
 * these functions.
 */
#include "tx.h"

#include <linux/if_packet.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

int mmb_packet_socket(int domain, int type, int protocol);
int mmb_packet_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int mmb_packet_bind(int fd, const struct sockaddr *address, socklen_t len);
int mmb_packet_poll(struct pollfd *fds, nfds_t n, int timeout);
ssize_t mmb_packet_sendto(int fd, const void *data, size_t len, int flags, const struct sockaddr *to, socklen_t to_len);

int mmb_packet_socket(int domain, int type, int protocol)
{
	return socket(domain, type, domain == AF_PACKET ? 0 : protocol);
}

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

int mmb_packet_poll(struct pollfd *fds, nfds_t n, int timeout)
{
	(void)timeout;
	return poll(fds, n, 0);
}

ssize_t mmb_packet_sendto(int fd, const void *data, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
	ssize_t sent = sendto(fd, data, len, flags, to, to_len);

	mmb_tx_leave(fd);
	mmb_tx_count(sent);
	return sent;
}
