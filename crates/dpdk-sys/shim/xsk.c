/* SPDX-License-Identifier: Apache-2.0
 *
 * Corrections of DPDK 22.11's AF_XDP driver: leaks when it closes a port, the loading of XDP programs,
 * waiting for the kernel when it sends, and busy polling.
 *
 * When the driver closes a port, it deletes the socket object but, by an off-by-one condition, never the
 * memory registration (umem) that owns the file descriptor. The kernel's socket stays bound and the
 * interface's queue busy until the process ends. The buffers in the four rings that it shares with the
 * kernel, more than two thousand, are lost.
 *
 * The driver is linked statically, so its calls of libxdp reach the functions here first. Each function calls
 * libxdp's. The deletion of a socket also deletes the registration, and returns the buffers to their pool
 * once the kernel has stopped using them. A driver that deletes the registration itself finds it deleted. The
 * few buffers that the kernel has taken from the rings but not used (at most one in copy mode) stay lost.
 *
 * The XDP program is the project's (bpf/steer.c), and the opener of the port attaches it by a link. So libxdp
 * is told to load none. When the driver closes a port or fails to open one, it detaches any program of the
 * interface, even another process's. The build copies the driver's library and renames its calls of
 * bpf_xdp_detach to a function that does nothing.
 *
 * To have the kernel take the frames of the send ring, the driver calls send(2) until the kernel has taken
 * all. In copy mode, the kernel takes no more than the socket's send buffer holds, until the receiver has
 * freed some. Where the receiver needs the processor of the worker, the worker used up its time by asking.
 * The build renames these calls to mmb_xsk_send, which stops when the kernel takes nothing. It also stops
 * for a while when the device has lost a frame, as its receiver's queue is full (a veth's has 256 places):
 * it would lose all further frames before the receiver has run, perhaps on this processor, which is
 * yielded to it. What is left in the ring is offered again with the next frames, or by the worker
 * (mmb_tx_offer).
 *
 * The driver asks for busy polling: each look into an empty receive ring, and each send, runs the device's
 * receive function by a system call. In copy mode, the kernel runs this function anyway when frames
 * arrive: of a veth, on the sender's processor. Such calls find nothing. So a socket in copy mode refuses
 * the option, and the driver looks into the ring alone. Without busy polling, the driver would wait in
 * poll(2) for up to a second if the kernel wants to be woken to fill the ring. mmb_xsk_poll wakes it and
 * does not wait.
 */
#define _GNU_SOURCE
#include "shim.h"
#include "tx.h"

#include <errno.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include <rte_cycles.h>
#include <xdp/xsk.h>

#define SOCKETS 64

/* For how long a device whose receiver's queue was full gets no frames. Each further one may be lost. */
#define FULL_MICROSECONDS 50

/* A registration, its rings and its socket. The driver shares no registration between sockets. */
struct registration {
	struct xsk_umem *umem;
	struct xsk_socket *xsk;
	/* The descriptor of the socket. It is read without the lock. */
	int fd;
	/* The time (TSC) when the device has lost a frame, as its receiver's queue was full. */
	__u64 full;
	char *area;
	size_t object_header;
	struct xsk_ring_prod *fill, *tx;
	struct xsk_ring_cons *comp, *rx;
};

static struct registration table[SOCKETS];
static struct xsk_umem *deleted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static __thread int last_error, last_socket = -1;
static int (*umem_create)(struct xsk_umem **, void *, __u64, struct xsk_ring_prod *, struct xsk_ring_cons *,
			  const struct xsk_umem_config *);
static int (*umem_delete)(struct xsk_umem *);
static int (*socket_create)(struct xsk_socket **, const char *, __u32, struct xsk_umem *, struct xsk_ring_cons *,
			    struct xsk_ring_prod *, const struct xsk_socket_config *);
static void (*socket_delete)(struct xsk_socket *);

void mmb_xsk_install(void)
{
	umem_create = mmb_libraries_xdp("xsk_umem__create");
	umem_delete = mmb_libraries_xdp("xsk_umem__delete");
	socket_create = mmb_libraries_xdp("xsk_socket__create");
	socket_delete = mmb_libraries_xdp("xsk_socket__delete");
}

int mmb_xsk_take_error(void)
{
	int error = last_error;

	last_error = 0;
	return error;
}

int mmb_xsk_take_socket(void)
{
	int socket = last_socket;

	last_socket = -1;
	return socket;
}

/* The registration of a socket, or NULL. */
static struct registration *of_socket(int fd)
{
	struct registration *at;

	for (at = table; at < table + SOCKETS; at++)
		if (__atomic_load_n(&at->fd, __ATOMIC_ACQUIRE) == fd)
			return at;
	return NULL;
}

ssize_t mmb_xsk_send(int fd, const void *data, size_t len, int flags)
{
	struct registration *at = of_socket(fd);
	const struct xsk_ring_prod *ring = at != NULL ? at->tx : NULL;
	__u32 taken;

	if (at != NULL && rte_rdtsc() - at->full < rte_get_tsc_hz() * FULL_MICROSECONDS / 1000000) {
		sched_yield();
		mmb_tx_leave(fd);
		return 0;
	}
	do {
		taken = ring != NULL ? __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE) : 0;
		if (sendto(fd, data, len, flags, NULL, 0) >= 0)
			return 0;
		if (errno == EBUSY && at != NULL) {
			at->full = rte_rdtsc();
			break;
		}
		if (errno != EAGAIN && errno != EBUSY && errno != EINTR)
			return -1;
		/* The kernel takes some frames at a time. */
	} while (errno == EINTR || (ring != NULL && __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE) != taken));
	mmb_tx_leave(fd);
	return 0;
}

/* Whether the kernel copies the frames of a socket. */
static bool copies(int fd)
{
	struct xdp_options options;
	socklen_t len = sizeof(options);

	return getsockopt(fd, SOL_XDP, XDP_OPTIONS, &options, &len) == 0 && !(options.flags & XDP_OPTIONS_ZEROCOPY);
}

int mmb_xsk_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int mmb_xsk_poll(struct pollfd *fds, nfds_t n, int timeout);

int mmb_xsk_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	if (level == SOL_SOCKET && name == SO_PREFER_BUSY_POLL && copies(fd)) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return setsockopt(fd, level, name, value, len);
}

int mmb_xsk_poll(struct pollfd *fds, nfds_t n, int timeout)
{
	(void)timeout;
	return poll(fds, n, 0);
}

bool mmb_xsk_has(int fd)
{
	return of_socket(fd) != NULL;
}

int mmb_xsk_detach(int ifindex, __u32 flags, const struct bpf_xdp_attach_opts *opts);

int mmb_xsk_detach(int ifindex, __u32 flags, const struct bpf_xdp_attach_opts *opts)
{
	(void)ifindex;
	(void)flags;
	(void)opts;
	return 0;
}

/* The entry of a registration or of a socket (the other argument is NULL); with both NULL, a free entry. */
static struct registration *find(const struct xsk_umem *umem, const struct xsk_socket *xsk)
{
	struct registration *at;

	for (at = table; at < table + SOCKETS; at++)
		if (xsk != NULL ? at->xsk == xsk : at->umem == umem)
			return at;
	return NULL;
}

/* Lists the buffers in all rings of a registration. Returns their number. */
static size_t collect(const struct registration *from, __u64 **list)
{
	size_t room = 0, n = 0;
	__u32 at;

	room += from->fill->size + from->comp->size;
	room += from->rx != NULL ? from->rx->size + from->tx->size : 0;
	*list = malloc(room * sizeof(**list));
	if (*list == NULL)
		return 0;
	for (at = *from->fill->consumer; at != *from->fill->producer && n < room; at++)
		(*list)[n++] = *xsk_ring_prod__fill_addr(from->fill, at);
	for (at = *from->comp->consumer; at != *from->comp->producer && n < room; at++)
		(*list)[n++] = *xsk_ring_cons__comp_addr(from->comp, at);
	if (from->rx == NULL)
		return n;
	for (at = *from->rx->consumer; at != *from->rx->producer && n < room; at++)
		(*list)[n++] = xsk_ring_cons__rx_desc(from->rx, at)->addr;
	for (at = *from->tx->consumer; at != *from->tx->producer && n < room; at++)
		(*list)[n++] = xsk_ring_prod__tx_desc(from->tx, at)->addr;
	return n;
}

/* Returns buffers to their pool and frees the list. */
static void free_buffers(const struct registration *from, __u64 *list, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		char *object = from->area + xsk_umem__extract_addr(list[i]);

		rte_pktmbuf_free((struct rte_mbuf *)(object + from->object_header));
	}
	free(list);
}

int xsk_umem__create(struct xsk_umem **umem, void *area, __u64 size, struct xsk_ring_prod *fill,
		     struct xsk_ring_cons *comp, const struct xsk_umem_config *config)
{
	struct registration *at;
	int status;

	if (umem_create == NULL || umem_delete == NULL)
		return -ENOSYS;
	status = umem_create(umem, area, size, fill, comp, config);
	last_error = -status;
	if (status != 0)
		return status;
	pthread_mutex_lock(&lock);
	if (deleted == *umem)
		deleted = NULL;
	at = find(NULL, NULL);
	if (at != NULL) {
		*at = (struct registration){
			.umem = *umem,
			.area = area,
			/* The driver's headroom is the pool's object header, the mbuf and DPDK's headroom. */
			.object_header = config->frame_headroom - sizeof(struct rte_mbuf) - RTE_PKTMBUF_HEADROOM,
			.fill = fill,
			.comp = comp,
		};
	}
	pthread_mutex_unlock(&lock);
	if (at == NULL) {
		umem_delete(*umem);
		return -ENOSPC;
	}
	return 0;
}

/* Called for a registration whose socket could not be made, or by a driver that deletes it after the
 * socket. */
int xsk_umem__delete(struct xsk_umem *umem)
{
	struct registration *at, was;
	__u64 *list = NULL;
	size_t n;
	int status;

	pthread_mutex_lock(&lock);
	if (umem == NULL || umem == deleted) {
		deleted = NULL;
		pthread_mutex_unlock(&lock);
		return 0;
	}
	at = find(umem, NULL);
	if (at != NULL)
		was = *at;
	pthread_mutex_unlock(&lock);
	if (at == NULL)
		return umem_delete(umem);
	n = collect(&was, &list);
	status = umem_delete(umem);
	if (status != 0) {
		free(list);
		return status;
	}
	free_buffers(&was, list, n);
	pthread_mutex_lock(&lock);
	at->umem = NULL;
	pthread_mutex_unlock(&lock);
	return 0;
}

/* Makes a socket. The kernel releases a queue some time after its socket was closed. So while the queue is
 * busy and the interface has no program, the function tries again for up to half a second. */
static int create_when_free(struct xsk_socket **xsk, const char *interface, __u32 queue, struct xsk_umem *umem,
			    struct xsk_ring_cons *rx, struct xsk_ring_prod *tx, const struct xsk_socket_config *config)
{
	const struct timespec moment = { .tv_nsec = 5 * 1000 * 1000 };
	__u32 program;
	int status, round;

	for (round = 0; ; round++) {
		status = socket_create(xsk, interface, queue, umem, rx, tx, config);
		if (status != -EBUSY || round == 100)
			return status;
		if (bpf_xdp_query_id(if_nametoindex(interface), 0, &program) != 0 || program != 0)
			return status;
		nanosleep(&moment, NULL);
	}
}

int xsk_socket__create(struct xsk_socket **xsk, const char *interface, __u32 queue, struct xsk_umem *umem,
		       struct xsk_ring_cons *rx, struct xsk_ring_prod *tx, const struct xsk_socket_config *config)
{
	struct xsk_socket_config without_program = *config;
	struct registration *at;
	int status;

	if (socket_create == NULL || socket_delete == NULL)
		return -ENOSYS;
	without_program.libxdp_flags |= XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;
	status = create_when_free(xsk, interface, queue, umem, rx, tx, &without_program);
	last_error = -status;
	if (status != 0)
		return status;
	last_socket = xsk_socket__fd(*xsk);
	pthread_mutex_lock(&lock);
	at = find(umem, NULL);
	if (at != NULL) {
		at->xsk = *xsk;
		at->rx = rx;
		at->tx = tx;
		__atomic_store_n(&at->fd, last_socket, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

void xsk_socket__delete(struct xsk_socket *xsk)
{
	struct registration *at = NULL, was;
	__u64 *list = NULL;
	size_t n;

	if (xsk == NULL)
		return;
	pthread_mutex_lock(&lock);
	at = find(NULL, xsk);
	if (at != NULL) {
		was = *at;
		__atomic_store_n(&at->fd, 0, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	if (at == NULL) {
		socket_delete(xsk);
		return;
	}
	/* Deleting the socket unmaps the rings. The kernel may still take buffers from them; these are
	 * never received. */
	n = collect(&was, &list);
	socket_delete(xsk);
	/* Closes the kernel's socket and waits until the kernel has stopped using the buffers. */
	umem_delete(was.umem);
	free_buffers(&was, list, n);
	pthread_mutex_lock(&lock);
	*at = (struct registration){ 0 };
	deleted = was.umem;
	pthread_mutex_unlock(&lock);
}
