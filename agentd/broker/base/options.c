/* broker_options.c - one table; what is not in it belongs to the worker.
 *
 * getopt_long() takes abbreviations and reorders, so it could swallow a flag that is meant for the
 * worker; here a flag is ours only if its name is exactly one of ours, and all the rest goes on to
 * the worker unchanged and in order.
 */
#include "options.h"
#include "common/err.h"
#include "common/mem.h"
#include "endpoint.h"
#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

enum {
	FALLBACK_ID = 1338,
	ENVOY_ID =
	    1337, /* Istio redirects by it: the worker's traffic must not look like Envoy's */
	MAX_PODS = 1024,
	MAX_PODS_LIMIT = 65536,
	PATH_SIZE_MAX = 1024,
	CGROUP_SIZE_MAX = 255,
	RUN_SIZE_MAX = 47, /* <run>/pods/<uid>/mount/.socket.new is a unix socket's address */
};

enum kind { PATH, FILE_PATH, CGROUP, NAME, ADDRESS, NUMBER, PLANE_FILE, SWITCH, MODE };

struct flag {
	const char *name, *value, *help;
	enum kind kind;
	size_t offset; /* but for NUMBER and MODE */
	enum broker_mode mode;
};

#define FIELD(f) offsetof(struct broker_options, f)
static const struct flag flags[] = {
    {"run", "DIR", "pods' directories, admin.sock (/run/agentd)", PATH, FIELD(run), 0},
    {"manifests", "DIR",
	"<uid>.yaml and <uid>/token of each pod (/etc/agentd/pods.d; none with --kubelet-root)",
	PATH, FIELD(manifests), 0},
    {"kubelet-root", "DIR", "serve pods' CSI volumes of the kubelet of this directory (none)", PATH,
	FIELD(kubelet_root), 0},
    {"config", "FILE", "the worker's settings (/etc/agentd/agentd.yaml)", FILE_PATH, FIELD(config),
	0},
    {"root-file", "INDEX=FILE", "root certificates of control plane INDEX; may be repeated",
	PLANE_FILE, FIELD(root_files), 0},
    {"crl-file", "INDEX=FILE", "revocation list of control plane INDEX; may be repeated",
	PLANE_FILE, FIELD(crl_files), 0},
    {"cgroup-root", "DIR", "where cgroup v2 is mounted (found by itself)", PATH, FIELD(cgroup_root),
	0},
    {"kubepods", "NAME",
	"the kubelet's cgroup of all pods: a path below the cgroup root (the usual ones)", CGROUP,
	FIELD(kubepods), 0},
    {"worker-user", "NAME", "user or uid the worker runs as (agentd; 1338 if there is none)", NAME,
	FIELD(worker_user), 0},
    {"max-pods", "N", "more are refused (1024)", NUMBER, 0, 0},
    {"take-over", NULL, "take the place of the agentd that runs, and all it holds", SWITCH,
	FIELD(take_over), 0},
    {"linger", NULL, "after a hand-over wait for SIGTERM: for who restarts whatever ends", SWITCH,
	FIELD(linger), 0},
    {"no-privsep", NULL, "leave the worker root's rights: for debugging only", SWITCH,
	FIELD(no_privsep), 0},
    {"redirect", NULL, "redirect pods' traffic to their Envoys, with eBPF", SWITCH, FIELD(redirect),
	0},
    {"redirect-cgroup", "NAME",
	"all pods are below it: a path below the cgroup root (the root; without manifests "
	"--kubepods)",
	NAME, FIELD(redirect_cgroup), 0},
    {"redirect-allow", "LIST",
	"what pods may ask for beside strict capture (permissive,exclusions)", NAME,
	FIELD(redirect_allow), 0},
    {"bpffs", "DIR", "where eBPF programs are pinned (/sys/fs/bpf)", PATH, FIELD(bpffs), 0},
    {"metrics", "ADDR:PORT", "serve /metrics and /healthz there, to anybody (none)", ADDRESS,
	FIELD(metrics), 0},
    {"check", NULL, "say what kernel and node offer, check the configuration, end", MODE, 0,
	BROKER_CHECK},
    {"redirect-uninstall", NULL, "detach and forget all eBPF programs of all agentds, end", MODE, 0,
	REDIRECT_UNINSTALL},
    {"check-state", NULL, NULL, MODE, 0, BROKER_CHECK_STATE}, /* asked by agentd only */
    {"version", NULL, "say the version and end", MODE, 0, BROKER_SHOW_VERSION},
    {"help", NULL, "this text", MODE, 0, BROKER_HELP},
};
enum { NFLAGS = sizeof(flags) / sizeof(flags[0]) };

void broker_options_help(FILE *out)
{
	char left[40];

	fprintf(out, "agentd [FLAG]...  gives the Envoys of this node their certificates and "
		     "configuration\n\n");
	for (int i = 0; i < NFLAGS; i++) {
		if (!flags[i].help)
			continue;
		snprintf(left, sizeof(left), "--%s %s", flags[i].name,
		    flags[i].value ? flags[i].value : "");
		fprintf(out, "  %-24s %s\n", left, flags[i].help);
	}
	fprintf(out, "\nAny other flag goes to the worker: see agentd-worker --help\n");
}

/* Digits only; -1: not a number, or more than `max`. */
static long parse_number(const char *text, long max)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return -1;
	errno = 0;
	long n = strtol(text, &end, 10);
	return *end || errno || n > max ? -1 : n;
}

static int check_path(const char *name, const char *path, struct err *e)
{
	if (*path != '/')
		return err_set(e, EINVAL, "--%s needs an absolute path, not \"%s\"", name, path);
	if (strlen(path) > PATH_SIZE_MAX)
		return err_set(e, ENAMETOOLONG, "--%s: more than %d bytes", name, PATH_SIZE_MAX);
	return 0;
}

/* As it is named below the root: no more ways to write it than one. */
static int check_cgroup(const char *name, const char *value, struct err *e)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789_.@:-/";
	size_t n = strlen(value);

	if (n && n <= CGROUP_SIZE_MAX && strspn(value, allowed) == n && *value != '/' &&
	    value[n - 1] != '/' && !strstr(value, "..") && !strstr(value, "//"))
		return 0;
	return err_set(e, EINVAL,
	    "--%s needs a path below the cgroup root (kubelet/kubepods), not \"%.80s\"", name,
	    value);
}

static int set_plane_file(
    struct broker_options *o, const struct flag *f, const char *value, struct err *e)
{
	const char **files = (const char **)(void *)((char *)o + f->offset);
	char number[8], name[40];
	const char *file = strchr(value, '=');
	long index = -1;

	if (file && file - value < (long)sizeof(number)) {
		snprintf(number, sizeof(number), "%.*s", (int)(file - value), value);
		index = parse_number(number, LINK_PLANES_MAX - 1);
	}
	if (index < 0)
		return err_set(e, EINVAL,
		    "--%s needs INDEX=FILE with an INDEX of 0 to %d, not \"%s\"", f->name,
		    LINK_PLANES_MAX - 1, value);
	if (files[index])
		return err_set(e, EINVAL, "--%s %ld is given twice", f->name, index);
	snprintf(name, sizeof(name), "%s INDEX=", f->name);
	if (check_path(name, file + 1, e))
		return -1;
	if (file[strlen(file) - 1] == '/')
		return err_set(e, EINVAL, "--%s: %s is a directory", f->name, file + 1);
	files[index] = file + 1;
	return 0;
}

static int set(struct broker_options *o, const struct flag *f, const char *value, struct err *e)
{
	long n;

	switch (f->kind) {
	case MODE:
		o->mode = f->mode;
		return 0;
	case SWITCH:
		*(bool *)((char *)o + f->offset) = true;
		return 0;
	case PLANE_FILE:
		return set_plane_file(o, f, value, e);
	case NUMBER:
		if ((n = parse_number(value, MAX_PODS_LIMIT)) < 1)
			return err_set(e, EINVAL, "--%s needs a number from 1 to %d, not \"%s\"",
			    f->name, MAX_PODS_LIMIT, value);
		o->max_pods = (unsigned)n;
		return 0;
	case PATH:
		if (check_path(f->name, value, e))
			return -1;
		break;
	case CGROUP:
		if (check_cgroup(f->name, value, e))
			return -1;
		break;
	case ADDRESS:
		if (broker_endpoint_parse(value, &(struct sockaddr_storage){0}, e))
			return -1;
		break;
	case FILE_PATH:
		o->config_named = true;
		break;
	case NAME:
		break;
	}
	*(const char **)(void *)((char *)o + f->offset) = value;
	return 0;
}

/* The flag that `arg` names exactly, its "=VALUE" (or NULL) in `value`. */
static const struct flag *find_flag(const char *arg, const char **value)
{
	if (strncmp(arg, "--", 2) != 0)
		return NULL;
	arg += 2;
	size_t n = strcspn(arg, "=");
	*value = arg[n] ? arg + n + 1 : NULL;
	for (int i = 0; i < NFLAGS; i++)
		if (strlen(flags[i].name) == n && !strncmp(flags[i].name, arg, n))
			return &flags[i];
	return NULL;
}

/* Returns how many arguments were used: 1 or 2; -1: refused. */
static int parse_one(struct broker_options *o, char **argv, struct err *e)
{
	const char *value = NULL;
	const struct flag *f = find_flag(argv[0], &value);
	int used = 1;

	if (!f) {
		o->worker_argv[o->worker_argc++] = argv[0];
		return 1;
	}
	if (!f->value && value)
		return err_set(e, EINVAL, "--%s takes no value", f->name);
	if (f->value && !value) {
		value = argv[1];
		used = 2;
	}
	if (!value)
		value = "";
	if (f->value && !*value)
		return err_set(e, EINVAL, "--%s needs a value: %s", f->name, f->value);
	return set(o, f, value, e) ? -1 : used;
}

int broker_options_parse(struct broker_options *o, int argc, char **argv, struct err *e)
{
	static char worker[] = "agentd-worker";

	*o = (struct broker_options){.run = "/run/agentd",
	    .config = "/etc/agentd/agentd.yaml",
	    .worker_user = "agentd",
	    .redirect_allow = "permissive,exclusions",
	    .bpffs = "/sys/fs/bpf",
	    .max_pods = MAX_PODS};
	o->worker_argv = mem_zalloc(((size_t)argc + 2) * sizeof(char *));
	o->worker_argv[o->worker_argc++] = worker;
	for (int i = 1, used; i < argc; i += used)
		if ((used = parse_one(o, argv + i, e)) < 0)
			return -1;
	/* A source that is not there would stop every sweep. */
	if (!o->manifests && !o->kubelet_root)
		o->manifests = "/etc/agentd/pods.d";
	if (strlen(o->run) > RUN_SIZE_MAX)
		return err_set(e, ENAMETOOLONG,
		    "--run: \"%s\" is longer than %d bytes, and addresses of sockets in it would "
		    "not fit",
		    o->run, RUN_SIZE_MAX);
	return 0;
}

void broker_options_clear(struct broker_options *o)
{
	free(o->worker_argv);
	o->worker_argv = NULL;
}

int broker_options_user(const struct broker_options *o, struct broker_user *u, struct err *e)
{
	long n = parse_number(o->worker_user, 0x7fffffff);
	const struct passwd *pw = n < 0 ? getpwnam(o->worker_user) : NULL;

	u->known = n >= 0 || pw;
	u->uid = u->gid = n >= 0 ? (uid_t)n : FALLBACK_ID;
	if (pw) {
		u->uid = pw->pw_uid;
		u->gid = pw->pw_gid;
	}
	if (u->uid == 0 || u->gid == 0)
		return err_set(e, EINVAL, "--worker-user: the worker must not be root");
	if (u->uid == ENVOY_ID || u->gid == ENVOY_ID)
		return err_set(e, EINVAL,
		    "--worker-user: %d is Envoy's; redirection would take the worker for it",
		    ENVOY_ID);
	return 0;
}
