/* secret.c - a mapping for each: its size, then the text. */
#include "secret.h"
#include "log.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

LOG_SCOPE("secret");

struct secret {
	size_t size; /* of the mapping */
	char text[];
};

static void say_once(void)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&said))
		log_warn(NULL,
		    "keys and tokens may be swapped out: mlock: %s (raise RLIMIT_MEMLOCK: "
		    "LimitMEMLOCK= of the unit, or of the container runtime's)",
		    strerror(errno));
}

static size_t mapping_size(size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), all = sizeof(struct secret) + len + 1;

	return (all + page - 1) / page * page;
}

char *secret_new(const char *bytes, size_t len)
{
	size_t size = mapping_size(len);
	struct secret *s =
	    mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (s == MAP_FAILED)
		abort(); /* as mem_zalloc() */
	/* Before the bytes are there.  Every kernel that we run on knows the two advices. */
	madvise(s, size, MADV_DONTDUMP);
	madvise(s, size, MADV_WIPEONFORK);
	/* Not mlock(): a sanitizer makes it do nothing. */
	if (syscall(SYS_mlock, s, size))
		say_once();
	s->size = size;
	memcpy(s->text, bytes, len);
	return s->text;
}

char *secret_dup(const char *s)
{
	return s ? secret_new(s, strlen(s)) : NULL;
}

void secret_free(char *s)
{
	if (!s)
		return;
	struct secret *own = (struct secret *)(void *)(s - offsetof(struct secret, text));
	munmap(own, own->size);
}
