/* granted.c - see granted.h.  What is kept is the struct, up to the last of its cidrs. */
#include "granted.h"
#include "broker/base/io.h"
#include "broker/base/state.h"
#include "check.h"
#include "common/log.h"
#include "common/mem.h"
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

LOG_SCOPE("broker");

static size_t size_of(const struct redirect_rules *rules)
{
	return offsetof(struct redirect_rules, cidrs) + rules->ncidrs * sizeof(rules->cidrs[0]);
}

static bool was_given(
    struct broker_states *s, const struct uuid *pod, const struct redirect_rules *rules)
{
	auto_free struct redirect_rules *given = mem_zalloc(sizeof(*given));
	struct err ignored;
	auto_close int fd = broker_state_rules_get(s, pod, &ignored);

	return fd >= 0 && pread(fd, given, sizeof(*given), 0) == (ssize_t)size_of(rules) &&
	       !memcmp(given, rules, size_of(rules));
}

int redirect_granted_check(struct broker_states *s, const struct uuid *pod,
    const struct redirect_rules *rules, const struct redirect_ceiling *c, struct err *e)
{
	struct redirect_ceiling highest = *c;
	struct err why;

	if (!redirect_check(rules, c, e))
		return 0;
	/* What no ceiling allows is nothing that it lost. */
	highest.permissive = highest.exclusions = highest.probes = highest.is_manifests = true;
	return !redirect_check(rules, &highest, &why) && was_given(s, pod, rules) ? 1 : -1;
}

static int put(struct broker_states *s, const struct uuid *pod, const struct redirect_rules *rules,
    struct err *e)
{
	auto_close int fd = memfd_create("agentd", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || write(fd, rules, size_of(rules)) != (ssize_t)size_of(rules))
		return err_sys(e, "memfd");
	return broker_io_seal(fd, e) ? -1 : broker_state_rules_put(s, pod, fd, e);
}

void redirect_granted_keep(
    struct broker_states *s, const struct uuid *pod, const struct redirect_rules *rules)
{
	struct redirect_ceiling lowest = {.worker_uid = 0};
	char name[UUID_TEXT_SIZE];
	struct err e;

	redirect_ceiling_read("strict", &lowest, &e);
	if (redirect_check(rules, &lowest, &e) ? !put(s, pod, rules, &e)
					       : !broker_state_rules_del(s, pod, &e))
		return;
	uuid_format(pod, name);
	log_warn(name,
	    "the rules of its traffic are not kept, so a lower ceiling will refuse it: %s", e.msg);
}

void redirect_granted_forget(struct broker_states *s, const struct uuid *pod)
{
	struct err ignored;

	broker_state_rules_del(s, pod, &ignored);
}
