/* options.c - where each flag goes: into our options, on to the worker, or both.
 *
 * getopt_long() takes abbreviations and reorders, so it could swallow a flag that is meant for the
 * worker; here a flag has exactly its name in common/flags.h, and the worker's flags go on to it
 * unchanged and in order.
 */
#include "options.h"
#include "common/err.h"
#include "common/flags.h"
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
	MAX_PODS_LIMIT = 65536,
	SECONDS_LIMIT = 240, /* a container that is not ready for five minutes is restarted */
	PATH_SIZE_MAX = 1024,
	CGROUP_SIZE_MAX = 255,
	RUN_SIZE_MAX = 47, /* <run>/pods/<uid>/mount/.socket.new is a unix socket's address */
};

enum kind {
	PATH,
	FILE_PATH,
	CGROUP,
	NAME,
	ADDRESS,
	NUMBER,
	SECONDS,
	PLANE,
	SWITCH,
	REDIRECT,
	MODE,
	MODE_OF, /* with a value */
	SEEN
};

/* Where a flag of common/flags.h goes. */
struct target {
	const char *name;
	enum kind kind;
	size_t offset; /* but for NUMBER, MODE and SEEN */
	enum broker_mode mode;
};

#define FIELD(f) offsetof(struct broker_options, f)
static const struct target targets[] = {
    {"run", PATH, FIELD(run), 0},
    {"manifests", PATH, FIELD(manifests), 0},
    {"identity-dir", PATH, FIELD(identity_dir), 0},
    {"kubelet-root", PATH, FIELD(kubelet_root), 0},
    {"config", FILE_PATH, FIELD(config), 0},
    {"root-file", PLANE, FIELD(root_files), 0},
    {"crl-file", PLANE, FIELD(crl_files), 0},
    {"cgroup-root", PATH, FIELD(cgroup_root), 0},
    {"kubepods", CGROUP, FIELD(kubepods), 0},
    {"worker-user", NAME, FIELD(worker_user), 0},
    {"max-pods", NUMBER, 0, 0},
    {"take-over", SWITCH, FIELD(take_over), 0},
    {"linger", SWITCH, FIELD(linger), 0},
    {"take-over-s", SECONDS, FIELD(take_over_s), 0},
    {"alive", PATH, FIELD(alive), 0},
    {"no-privsep", SWITCH, FIELD(no_privsep), 0},
    {"redirect-cgroup", NAME, FIELD(redirect_cgroup), 0},
    {"probes-cgroup", CGROUP, FIELD(probes_cgroup), 0},
    {"redirect-allow", NAME, FIELD(redirect_allow), 0},
    {"bpffs", PATH, FIELD(bpffs), 0},
    {"metrics", ADDRESS, FIELD(metrics), 0},
    {"log-level", NAME, FIELD(log_level), 0},
    {"log-json", SEEN, 0, 0}, /* flags_log_json() */
    {"redirect", REDIRECT, FIELD(redirect), 0},
    {"check", MODE, 0, BROKER_CHECK},
    {"connect", SWITCH, FIELD(connect), 0},
    {"redirect-uninstall", MODE, 0, REDIRECT_UNINSTALL},
    {"redirect-gate", MODE, 0, REDIRECT_GATE},
    {"redirect-await", MODE_OF, FIELD(await), REDIRECT_AWAIT},
    {"check-state", MODE, 0, BROKER_CHECK_STATE},
    {"version", MODE, 0, BROKER_SHOW_VERSION},
    {"help", MODE, 0, BROKER_HELP},
};
enum { NTARGETS = sizeof(targets) / sizeof(targets[0]) };

void broker_options_help(FILE *out)
{
	fprintf(out, "agentd [FLAG]...  gives the Envoys of this node their certificates and "
		     "configuration\n\nFlags only:\n");
	flags_help(out, FLAG_BROKER);
	fprintf(out, "\nFlags that are keys of agentd.yaml, too, with '_' for '-':\n");
	flags_help(out, FLAG_WORKER);
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
    struct broker_options *o, const struct target *f, const char *value, struct err *e)
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

static int set(struct broker_options *o, const struct target *f, const char *value, struct err *e)
{
	long n;

	switch (f->kind) {
	case SEEN:
		return 0;
	case MODE:
		o->mode = f->mode;
		return 0;
	case SWITCH:
		*(bool *)((char *)o + f->offset) = true;
		return 0;
	case REDIRECT: /* alone: whoever asks for it gets it */
		o->redirect = !*value || !strcmp(value, "ebpf");
		return 0;
	case PLANE:
		return set_plane_file(o, f, value, e);
	case NUMBER:
		if ((n = parse_number(value, MAX_PODS_LIMIT)) < 1)
			return err_set(e, EINVAL, "--%s needs a number from 1 to %d, not \"%s\"",
			    f->name, MAX_PODS_LIMIT, value);
		o->max_pods = (unsigned)n;
		return 0;
	case SECONDS:
		if ((n = parse_number(value, SECONDS_LIMIT)) < 1)
			return err_set(e, EINVAL, "--%s needs seconds from 1 to %d, not \"%s\"",
			    f->name, SECONDS_LIMIT, value);
		*(unsigned *)(void *)((char *)o + f->offset) = (unsigned)n;
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
	case MODE_OF:
		o->mode = f->mode;
		break;
	case NAME:
		break;
	}
	*(const char **)(void *)((char *)o + f->offset) = value;
	return 0;
}

static const struct target *target_of(const struct flag *f)
{
	for (int i = 0; i < NTARGETS; i++)
		if (!strcmp(targets[i].name, f->name))
			return &targets[i];
	return NULL;
}

static bool has_value(const struct flag *f)
{
	return f->kind == FLAG_TEXT || f->kind == FLAG_NUMBER;
}

/* What only the broker understands, and what it heeds before it passes it on. */
static int set_ours(
    struct broker_options *o, const struct flag *f, const char *value, struct err *e)
{
	const struct target *t = target_of(f);

	if (f->whose == FLAG_WORKER)
		return 0;
	if (!t)
		return err_set(e, ENOENT, "--%s has no place in the broker", f->name);
	if (value && !*value && f->value)
		return err_set(e, EINVAL, "--%s needs a value: %s", f->name, f->value);
	return set(o, t, value ? value : "", e);
}

/* Returns how many arguments were used: 1 or 2; -1: refused. */
static int parse_one(struct broker_options *o, char **argv, struct err *e)
{
	const char *value;
	const struct flag *f = flags_of_argument(argv[0], &value);
	const struct target *t = f ? target_of(f) : NULL;
	int used = 1;

	o->bare &= t && (t->kind == MODE || !strcmp(t->name, "run") || !strcmp(t->name, "connect"));

	if (!f && !strncmp(argv[0], "--", 2))
		return flags_refuse_argument(argv[0], e);
	if (!f) {
		o->worker_argv[o->worker_argc++] = argv[0]; /* no flag: it refuses that */
		return 1;
	}
	if (f->kind == FLAG_SWITCH && value)
		return err_set(e, EINVAL, "--%s takes no value", f->name);
	if (has_value(f) && !value) {
		if (!(value = argv[1]))
			return err_set(e, EINVAL, "--%s needs a value: %s", f->name, f->value);
		used = 2;
	}
	if (set_ours(o, f, value, e))
		return -1;
	if (!(f->whose & FLAG_WORKER) || (f->kind == FLAG_OPTIONAL && !value))
		return used;
	for (int i = 0; i < used; i++)
		o->worker_argv[o->worker_argc++] = argv[i];
	return used;
}

static int set_defaults(struct broker_options *o, struct err *e)
{
	for (unsigned i = 0; i < flags_count; i++)
		if (flags_list[i].start && set_ours(o, &flags_list[i], flags_list[i].start, e))
			return -1;
	o->config_named = false;
	return 0;
}

int broker_options_parse(struct broker_options *o, int argc, char **argv, struct err *e)
{
	static char worker[] = "agentd-worker";

	*o = (struct broker_options){.mode = BROKER_RUN, .bare = true};
	o->worker_argv = mem_zalloc(((size_t)argc + 2) * sizeof(char *));
	o->worker_argv[o->worker_argc++] = worker;
	if (set_defaults(o, e))
		return -1;
	for (int i = 1, used; i < argc; i += used)
		if ((used = parse_one(o, argv + i, e)) < 0)
			return -1;
	if (o->connect && o->mode != BROKER_CHECK)
		return err_set(e, EINVAL, "--connect belongs to --check");
	/* A source that is not there would stop every sweep. */
	if (!o->manifests && !o->kubelet_root)
		o->manifests = "/etc/agentd/pods.d";
	if (strlen(o->run) > RUN_SIZE_MAX)
		return err_set(e, ENAMETOOLONG,
		    "--run: \"%s\" is longer than %d bytes: addresses of sockets in it would not "
		    "fit",
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
		return err_set(e, ERR_INVALID, "--worker-user: the worker must not be root");
	if (u->uid == ENVOY_ID || u->gid == ENVOY_ID)
		return err_set(e, ERR_INVALID,
		    "--worker-user: %d is Envoy's: redirection would take the worker for an Envoy",
		    ENVOY_ID);
	return 0;
}
