/* bootstrap.c - agentctl bootstrap POD
 *
 * The file in the pod's directory is what its Envoy reads when it starts, so that is what is
 * printed; agentd says whose directory it is, or nobody needs to where a uid is given.
 */
#include "commands.h"
#include "common/mem.h"
#include "list.h"
#include "show.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BOOTSTRAP_SIZE_MAX = 2 << 20, UID_SIZE = 36 };

static bool is_uid(const char *word)
{
	return strlen(word) == UID_SIZE && strspn(word, "0123456789abcdef-") == UID_SIZE;
}

static bool is_named(const json_t *pod, const char *name)
{
	auto_free char *label =
	    mem_printf("%s/%s", ctl_string(pod, "namespace"), ctl_string(pod, "name"));

	return !strcmp(label, name) || !strcmp(ctl_string(pod, "name"), name);
}

/* A pod and the one that replaces it can have the same name.  The caller's; NULL: it was said why.
 */
static char *find_uid(const struct ctl *c, const char *name, int *status)
{
	static const struct ctl_list list = {
	    .noun = "pods", .page = "/pods", .key = "pods", .is_named = is_named};
	json_t *answer = ctl_list_fetch(c, &list, name, status), *pods;
	char *uid = NULL;

	pods = json_object_get(answer, "pods");
	if (json_array_size(pods) == 1)
		uid = mem_strdup(ctl_string(json_array_get(pods, 0), "uid"));
	else if (json_array_size(pods) > 1)
		fprintf(stderr, "agentctl: %s: %zu pods have this name; give the uid\n", name,
		    json_array_size(pods));
	if (!uid && *status == CTL_OK)
		*status = CTL_PROBLEM;
	json_decref(answer);
	return uid;
}

/* NULL: it was said why. */
static json_t *load(const char *path)
{
	auto_free char *text = mem_zalloc(BOOTSTRAP_SIZE_MAX);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, text, BOOTSTRAP_SIZE_MAX);
	json_t *document = n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;

	if (n < 0)
		fprintf(stderr, "agentctl: %s: %m (agentctl pods says why there is none)\n", path);
	else if (!document)
		fprintf(stderr, "agentctl: %s: not a bootstrap\n", path);
	return document;
}

static int bootstrap(const struct ctl *c)
{
	const char *word = c->words[0];
	int status = CTL_OK;
	auto_free char *uid = is_uid(word) ? mem_strdup(word) : find_uid(c, word, &status);
	json_t *document;

	if (!uid)
		return status;
	auto_free char *path = mem_printf("%s/pods/%s/mount/envoy-rev.json", c->run, uid);

	document = load(path);
	if (!document)
		return CTL_PROBLEM;
	ctl_print_answer(c, document);
	json_decref(document);
	return CTL_OK;
}

const struct ctl_command ctl_bootstrap = {
    .noun = "bootstrap",
    .args = "POD",
    .help = "what the pod's Envoy is started with (ns/name or uid); no secret is in it",
    .least = 1,
    .most = 1,
    .run = bootstrap,
};
