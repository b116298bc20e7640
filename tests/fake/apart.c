/* apart.c - broker/base/apart.h without children, for tests that count descriptors or children. */
#include "broker/base/apart.h"
#include <unistd.h>

bool apart_close(int fd)
{
	if (fd >= 0)
		close(fd);
	return true;
}

void apart_close_listener(int fd)
{
	close(fd);
}

void apart_refuse_descriptors(int listener)
{
	(void)listener;
}

bool apart_is_busy(void)
{
	return false;
}

bool apart_reaped(pid_t pid)
{
	(void)pid;
	return false;
}
