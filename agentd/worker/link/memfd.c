/* memfd.c - see memfd.h. */
#include "memfd.h"
#include "border/protocol.h"
#include "common/err.h"
#include "common/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

int link_memfd_sealed(const void *data, size_t size, struct err *e)
{
	auto_close int fd = memfd_create("agentd", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return err_sys(e, "memfd_create");
	for (size_t done = 0; done < size;) {
		ssize_t n = write(fd, (const char *)data + done, size - done);
		if (n <= 0)
			return err_sys(e, "write to a memfd");
		done += (size_t)n;
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return err_sys(e, "seal a memfd");
	return take_fd(fd);
}

char *link_memfd_read(int fd, size_t *size, struct err *e)
{
	struct stat st;
	auto_free char *data = NULL;
	size_t done = 0;

	if (fstat(fd, &st)) {
		err_sys(e, "what the broker sent");
		return NULL;
	}
	if (!S_ISREG(st.st_mode) || st.st_size > LINK_FILE_SIZE_MAX) {
		err_set(e, EPROTO, "the broker sent no file, or one that is too large");
		return NULL;
	}
	data = mem_zalloc((size_t)st.st_size + 1);
	while (done < (size_t)st.st_size) {
		ssize_t n = pread(fd, data + done, (size_t)st.st_size - done, (off_t)done);
		if (n <= 0) {
			err_sys(e, "read what the broker sent");
			return NULL;
		}
		done += (size_t)n;
	}
	*size = done;
	return take(data);
}
