/* state.c - new: a tmpfs, or memory -> put, del -> list: walk on, one entry for each packet.
 *
 * The worker numbers its entries by a digest, which becomes a name; the broker does not read their
 * content.  Its own entries it writes and reads as text, with the boot they are of: cookies of
 * network namespaces are counted from the start after each.
 */
#include "state.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "fdstore.h"
#include "io.h"
#include "store.h"
#include "tmpfs.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

LOG_SCOPE("broker");

enum {
	SPARE_ENTRIES = 64,
	BYTES_MAX = 40 << 20,
	NAMES_BYTES_MAX = 24 << 20, /* both together: BROKER_TMPFS_MIB */
	/* itself, namespace, rules, what serves it, certificate, and one that lingers */
	ENTRIES_PER_POD = 6,
	BOOT_ID_SIZE = 40,
	TEXT_SIZE = 128,
};

struct broker_states {
	struct broker_budget budget, names;
	struct broker_store worker[LINK_STATE_END], pods, rules;
	char boot_id[BOOT_ID_SIZE];
	/* the list that is under way */
	uint32_t list_id; /* 0: none */
	enum link_state list_kind;
};

static const char *const kinds[LINK_STATE_END] = {[LINK_STATE_CERT] = "cert",
    [LINK_STATE_CERT_IN_MEMORY] = "cert-memory",
    [LINK_STATE_POD] = "spec",
    [LINK_STATE_NAMES] = "names",
    [LINK_STATE_SERVED] = "served"};

/* --- life --- */

static void read_boot_id(char out[BOOT_ID_SIZE])
{
	auto_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, out, BOOT_ID_SIZE - 1);

	out[n > 0 ? n : 0] = '\0';
	out[strspn(out, "0123456789abcdef-")] = '\0';
}

static void path_of(const char *run, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%s/state", run);
}

int broker_state_check(const struct broker_options *o, struct err *e)
{
	char path[PATH_MAX];
	struct broker_tmpfs t;

	path_of(o->run, path);
	broker_tmpfs_look(path, &t);
	*e = t.why;
	return t.is == BROKER_TMPFS_WRONG ? -1 : 0;
}

/* NULL: in memory. */
static const char *place(const char *path, struct err *e)
{
	struct broker_tmpfs t;

	broker_tmpfs_open(path, &t);
	*e = t.why;
	switch (t.is) {
	case BROKER_TMPFS_WRONG:
		return NULL;
	case BROKER_TMPFS_DENIED:
		log_warn(NULL,
		    "no tmpfs for agentd's state: %s; the state stays in memory, and each service "
		    "account needs a new certificate after agentd's end; mount one yourself: mount "
		    "-t tmpfs -o size=%dM,mode=0700 tmpfs %s",
		    t.why.msg, BROKER_TMPFS_MIB, path);
		e->code = 0;
		return NULL;
	case BROKER_TMPFS_FOUND:
	case BROKER_TMPFS_MOUNTED:
		break;
	}
	if (!t.noswap && broker_tmpfs_swap_is_on())
		log_warn(NULL,
		    "swap is on, and %s may be swapped out: private keys may reach the disk; "
		    "swapoff, or encrypt it, or set state_keys: memory, or use Linux 6.4 (and "
		    "umount "
		    "%s once)",
		    path, path);
	return path;
}

static int open_stores(
    struct broker_states *s, const char *run, struct broker_fdstore *kept, struct err *e)
{
	char path[PATH_MAX];
	const char *in;

	path_of(run, path);
	if (!(in = place(path, e)) && e->code)
		return -1;
	for (int i = 0; i < LINK_STATE_END; i++)
		s->worker[i].kind = kinds[i];
	s->pods.kind = "pod";
	s->rules.kind = "rules";
	return broker_store_open(&s->worker[LINK_STATE_CERT], in, kept, &s->budget, e) ||
	       broker_store_open(
		   &s->worker[LINK_STATE_CERT_IN_MEMORY], NULL, kept, &s->budget, e) ||
	       broker_store_open(&s->worker[LINK_STATE_POD], in, kept, &s->budget, e) ||
	       broker_store_open(&s->worker[LINK_STATE_NAMES], in, kept, &s->names, e) ||
	       broker_store_open(&s->worker[LINK_STATE_SERVED], in, kept, &s->budget, e) ||
	       broker_store_open(&s->pods, in, kept, &s->budget, e) ||
	       broker_store_open(&s->rules, in, kept, &s->budget, e);
}

struct broker_states *broker_state_new(
    const struct broker_options *o, struct broker_fdstore *kept, struct err *e)
{
	struct broker_states *s = mem_zalloc(sizeof(*s));

	s->budget = (struct broker_budget){
	    .max = ENTRIES_PER_POD * o->max_pods + SPARE_ENTRIES, .bytes_max = BYTES_MAX};
	s->names = (struct broker_budget){
	    .max = o->max_pods + SPARE_ENTRIES, .bytes_max = NAMES_BYTES_MAX};
	read_boot_id(s->boot_id);
	if (open_stores(s, o->run, kept, e))
		broker_state_free(&s);
	return s;
}

void broker_state_free(struct broker_states **s)
{
	if (!*s)
		return;
	for (int i = 0; i < LINK_STATE_END; i++)
		broker_store_close(&(*s)->worker[i]);
	broker_store_close(&(*s)->pods);
	broker_store_close(&(*s)->rules);
	free(*s);
	*s = NULL;
}

/* --- the worker's --- */

static struct broker_store *store_of(
    struct broker_states *s, const struct link_request *r, struct err *e)
{
	if (r->kind < LINK_STATE_END)
		return &s->worker[r->kind];
	err_set(e, EINVAL, "there is no state of kind %u", r->kind);
	return NULL;
}

static void name_of(const uint8_t id[LINK_STATE_ID_SIZE], char out[BROKER_STORE_NAME])
{
	for (int i = 0; i < LINK_STATE_ID_SIZE; i++)
		snprintf(out + 2 * (ptrdiff_t)i, 3, "%02x", id[i]);
}

/* False: a file that somebody else has put there. */
static bool id_of(const char *name, uint8_t id[LINK_STATE_ID_SIZE])
{
	unsigned byte;

	for (int i = 0; i < LINK_STATE_ID_SIZE; i++) {
		if (sscanf(name + 2 * (ptrdiff_t)i, "%2x", &byte) != 1) /* NOLINT(cert-err34-c) */
			return false;
		id[i] = (uint8_t)byte;
	}
	return strlen(name) == 2 * (size_t)LINK_STATE_ID_SIZE && !strchr(name, '-');
}

int broker_state_put(
    struct broker_states *s, const struct link_request *r, int memfd, struct err *e)
{
	struct broker_store *in = store_of(s, r, e);
	char name[BROKER_STORE_NAME];

	name_of(r->state_id, name);
	return in ? broker_store_put(in, name, memfd, e) : -1;
}

int broker_state_del(struct broker_states *s, const struct link_request *r, struct err *e)
{
	struct broker_store *in = store_of(s, r, e);
	char name[BROKER_STORE_NAME];

	name_of(r->state_id, name);
	return in ? broker_store_del(in, name, e) : -1;
}

int broker_state_list(struct broker_states *s, const struct link_request *r, struct err *e)
{
	struct broker_store *in = store_of(s, r, e);

	if (!in || broker_store_walk(in, e))
		return -1;
	s->list_id = r->id;
	s->list_kind = r->kind;
	return 0;
}

bool broker_state_listing(const struct broker_states *s)
{
	return s->list_id != 0;
}

void broker_state_list_end(struct broker_states *s)
{
	for (int i = 0; i < LINK_STATE_END; i++)
		broker_store_walk_end(&s->worker[i]);
	s->list_id = 0;
}

/* One that cannot be read costs the worker a certificate, so it is said, and the list goes on. */
void broker_state_next(struct broker_states *s, struct link_packet *p, int *fd)
{
	struct broker_store *in = &s->worker[s->list_kind];
	char name[BROKER_STORE_NAME];
	struct err e;

	*p = (struct link_packet){
	    .id = s->list_id, .what = LINK_STATE, .kind = (uint16_t)s->list_kind};
	*fd = -1;
	while (*fd < 0 && broker_store_walk_on(in, name)) {
		if (id_of(name, p->state_id) && (*fd = broker_store_get(in, name, &e)) < 0)
			log_warn(NULL, "state is ignored: %s", e.msg);
	}
	if (*fd >= 0)
		return;
	*p = (struct link_packet){.id = s->list_id, .what = LINK_REPLY};
	broker_state_list_end(s);
}

bool broker_state_is_key(const char *kept_name)
{
	size_t n = strcspn(kept_name, ".");

	for (int i = 0; i < LINK_STATE_END; i++)
		if (strlen(kinds[i]) == n && !strncmp(kinds[i], kept_name, n))
			return true;
	return false;
}

/* --- the broker's own --- */

static int text_of(
    const struct broker_states *s, const struct broker_state_netns *n, char out[TEXT_SIZE])
{
	return snprintf(out, TEXT_SIZE,
	    "version: 1\nboot_id: %s\nnetns_cookie: %" PRIu64 "\ncgroup_id: %" PRIu64 "\n",
	    s->boot_id, n->cookie, n->cgroup_id);
}

static uint64_t number_of(const char *text, const char *key)
{
	const char *value = strstr(text, key);

	return value ? strtoull(value + strlen(key), NULL, 10) : 0;
}

int broker_state_netns_put(struct broker_states *s, const struct uuid *pod,
    const struct broker_state_netns *n, struct err *e)
{
	char name[UUID_TEXT_SIZE], text[TEXT_SIZE];
	size_t size = (size_t)text_of(s, n, text);
	auto_close int fd = memfd_create("agentd", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	uuid_format(pod, name);
	if (fd < 0 || write(fd, text, size) != (ssize_t)size)
		return err_sys(e, "memfd");
	if (broker_io_seal(fd, e))
		return -1;
	return broker_store_put(&s->pods, name, fd, e);
}

bool broker_state_netns_get(
    struct broker_states *s, const struct uuid *pod, struct broker_state_netns *out)
{
	char name[UUID_TEXT_SIZE], text[TEXT_SIZE], same[TEXT_SIZE];
	struct err e = {.code = 0};

	uuid_format(pod, name);
	auto_close int fd = broker_store_get(&s->pods, name, &e);
	ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	*out = (struct broker_state_netns){
	    number_of(text, "\nnetns_cookie: "), number_of(text, "\ncgroup_id: ")};
	text_of(s, out, same);
	if (out->cookie && !strcmp(text, same))
		return true;
	if (e.code != ENOENT)
		log_warn(name, "the kept network namespace of the pod is ignored: %s",
		    e.code        ? e.msg
		    : out->cookie ? "it is from another boot, or from another version of agentd"
				  : "it is damaged");
	return false;
}

int broker_state_netns_del(struct broker_states *s, const struct uuid *pod, struct err *e)
{
	char name[UUID_TEXT_SIZE];

	uuid_format(pod, name);
	return broker_store_del(&s->pods, name, e);
}

int broker_state_rules_put(
    struct broker_states *s, const struct uuid *pod, int memfd, struct err *e)
{
	char name[UUID_TEXT_SIZE];

	uuid_format(pod, name);
	return broker_store_put(&s->rules, name, memfd, e);
}

int broker_state_rules_get(struct broker_states *s, const struct uuid *pod, struct err *e)
{
	char name[UUID_TEXT_SIZE];

	uuid_format(pod, name);
	return broker_store_get(&s->rules, name, e);
}

int broker_state_rules_del(struct broker_states *s, const struct uuid *pod, struct err *e)
{
	char name[UUID_TEXT_SIZE];

	uuid_format(pod, name);
	return broker_store_del(&s->rules, name, e);
}
