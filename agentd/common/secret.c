/* secret.c - a slab is a mapping of units; a secret takes as many as it needs, side by side.
 *
 * new -> the first slab with room, or another one -> its size, then the text.
 * free -> wiped, its units are free; a slab without any secret goes back to the kernel.
 * Which units are taken is noted outside, for a forked child finds the pages empty.
 */
#include "secret.h"
#include "log.h"
#include "mem.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

LOG_SCOPE("secret");

enum { UNIT = 64, UNITS = 512, SHARED_MAX = 4096 };

struct secret {
	size_t size; /* of all that is its own: of its units, or of its mapping */
	char text[];
};

struct slab {
	char *at;
	size_t nused;
	bool used[UNITS];
	struct slab *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slab *slabs;

static void say_once(void)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&said))
		log_warn(NULL,
		    "keys and tokens may be swapped out: mlock: %s (raise RLIMIT_MEMLOCK: "
		    "LimitMEMLOCK= of the unit, or of the container runtime's)",
		    strerror(errno));
}

/* Before any secret is there.  Every kernel that we run on knows the two advices. */
static void *map(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		abort(); /* as mem_zalloc() */
	madvise(p, size, MADV_DONTDUMP);
	madvise(p, size, MADV_WIPEONFORK);
	/* Not mlock(): a sanitizer makes it do nothing. */
	if (syscall(SYS_mlock, p, size))
		say_once();
	return p;
}

static size_t round_up(size_t n, size_t step)
{
	return (n + step - 1) / step * step;
}

/* --- slabs --- */

static struct slab *slab_new(void)
{
	struct slab *s = mem_zalloc(sizeof(*s));

	s->at = map((size_t)UNITS * UNIT);
	s->next = slabs;
	slabs = s;
	return s;
}

static void slab_free(struct slab *s)
{
	struct slab **at = &slabs;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	munmap(s->at, (size_t)UNITS * UNIT);
	free(s);
}

/* The first of `n` units that are free; UNITS: there are none. */
static size_t find_room(const struct slab *s, size_t n)
{
	size_t free_units = 0;

	for (size_t i = 0; i < UNITS; i++) {
		free_units = s->used[i] ? 0 : free_units + 1;
		if (free_units == n)
			return i + 1 - n;
	}
	return UNITS;
}

static void *take_units(size_t n)
{
	struct slab *s = slabs;

	while (s && find_room(s, n) == UNITS)
		s = s->next;
	if (!s)
		s = slab_new();
	size_t first = find_room(s, n);

	memset(s->used + first, true, n * sizeof(*s->used));
	s->nused += n;
	return s->at + first * UNIT;
}

/* NULL: it has pages of its own. */
static struct slab *slab_of(const char *p)
{
	struct slab *s = slabs;

	while (s && (p < s->at || p >= s->at + (size_t)UNITS * UNIT))
		s = s->next;
	return s;
}

static void give_back(struct slab *s, char *p, size_t size)
{
	explicit_bzero(p, size);
	memset(s->used + (size_t)(p - s->at) / UNIT, false, size / UNIT * sizeof(*s->used));
	s->nused -= size / UNIT;
	if (!s->nused)
		slab_free(s);
}

/* --- secrets --- */

char *secret_new(const char *bytes, size_t len)
{
	size_t size = round_up(sizeof(struct secret) + len + 1, UNIT);
	struct secret *s;

	if (size > SHARED_MAX) {
		s = map(size);
	} else {
		pthread_mutex_lock(&lock);
		s = take_units(size / UNIT);
		pthread_mutex_unlock(&lock);
	}
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

	pthread_mutex_lock(&lock);
	struct slab *from = slab_of(s);

	if (from)
		give_back(from, (char *)own, own->size);
	else
		munmap(own, own->size);
	pthread_mutex_unlock(&lock);
}
