/* one_pod.c - see one_pod.h. */
#include "one_pod.h"
#include "common/err.h"
#include "common/mem.h"
#include "list.h"
#include "show.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BOOTSTRAP_SIZE_MAX = 2 << 20, UID_SIZE = 36 };

bool ctl_is_uid(const char *word)
{
	return strlen(word) == UID_SIZE && strspn(word, "0123456789abcdef-") == UID_SIZE;
}

static bool is_named(const json_t *pod, const char *name)
{
	auto_free char *label =
	    mem_printf("%s/%s", ctl_string(pod, "namespace"), ctl_string(pod, "name"));

	return !strcmp(label, name) || !strcmp(ctl_string(pod, "name"), name) ||
	       !strcmp(ctl_string(pod, "uid"), name);
}

/* A pod and the one that replaces it can have the same name. */
json_t *ctl_one_pod(const struct ctl *c, const char *name, int *status)
{
	static const struct ctl_list list = {
	    .noun = "pods", .page = "/pods", .key = "pods", .is_named = is_named};
	json_t *answer = ctl_list_fetch(c, &list, name, status);
	json_t *pods = json_object_get(answer, "pods"), *pod = NULL;

	if (json_array_size(pods) == 1)
		pod = json_incref(json_array_get(pods, 0));
	else if (json_array_size(pods) > 1)
		fprintf(stderr, "agentctl: %s: %zu pods have this name; give the uid\n", name,
		    json_array_size(pods));
	if (!pod && *status == CTL_OK)
		*status = CTL_PROBLEM;
	json_decref(answer);
	return pod;
}

json_t *ctl_bootstrap_of(const struct ctl *c, const char *uid, struct err *e)
{
	auto_free char *path = mem_printf("%s/pods/%s/mount/envoy-rev.json", c->run, uid);
	auto_free char *text = mem_zalloc(BOOTSTRAP_SIZE_MAX);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, text, BOOTSTRAP_SIZE_MAX);
	json_t *document = n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;

	if (n < 0)
		err_set(e, errno, "%s: %m (agentctl pods says why there is none)", path);
	else if (!document)
		err_set(e, ERR_INVALID, "%s: not a bootstrap", path);
	return document;
}
