/* A library for LD_PRELOAD: the wall clock of a process is wrong by the number of seconds in the file that
 * $WALL_CLOCK names. Another process may change the file at any time.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *offset;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("WALL_CLOCK");
	int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	void *memory = mmap(NULL, sizeof(*offset), PROT_READ, MAP_SHARED, file, 0);

	if (memory == MAP_FAILED)
		abort();
	offset = memory;
	close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	long failed = syscall(SYS_clock_gettime, clock, now);

	if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += *offset;
	return (int)failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec precise;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &precise);
	now->tv_sec = precise.tv_sec;
	now->tv_usec = precise.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *now)
{
	struct timespec precise;

	clock_gettime(CLOCK_REALTIME, &precise);
	if (now != NULL)
		*now = precise.tv_sec;
	return precise.tv_sec;
}
