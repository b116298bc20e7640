/* manifest.c - agentctl manifest --from DIR [--to DIR] [--name NAME]
 *
 * The files are read -> machine.c makes a manifest of them -> <uid>/, its token, then the manifest:
 * agentd may follow the directory already.  Each is made, or it is there and nothing is written;
 * what was made before something failed is taken away.  What is left to do, and what was left out,
 * is printed.
 */
#include "commands.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "machine.h"
#include "show.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_MAX = 1 << 20, TOKEN_MAX = 16 << 10 };

static const char to_default[] = "/etc/agentd/pods.d";

struct input {
	char *env, *mesh, *token, *hosts; /* `token` is a secret */
	size_t env_size, mesh_size, token_size, hosts_size;
};

/* Where things are put. */
struct output {
	char folder[PATH_MAX], token[PATH_MAX], manifest[PATH_MAX], temporary[PATH_MAX];
};

/* --- reading --- */

static int read_fd(int fd, char *out, size_t max, size_t *size, struct err *e)
{
	struct stat st;
	ssize_t n;

	*size = 0;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return err_set(e, EINVAL, "is not a regular file");
	while ((n = read(fd, out + *size, max + 1 - *size)) > 0)
		if ((*size += (size_t)n) > max)
			return err_set(e, EFBIG, "is larger than %zu KiB", max >> 10);
	return n < 0 ? err_sys(e, "cannot be read") : 0;
}

static char *read_file(const char *dir, const char *name, size_t max, size_t *size, struct err *e)
{
	auto_free char *path = mem_printf("%s/%s", dir, name);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char *text;

	if (fd < 0) {
		err_sys(e, "%s", path);
		return NULL;
	}
	text = mem_zalloc(max + 2);
	if (!read_fd(fd, text, max, size, e))
		return text;
	err_wrap(e, "%s", path);
	mem_wipe_free_block(text);
	return NULL;
}

static int read_input(struct input *in, const char *dir, struct err *e)
{
	char *token;
	struct err none;

	if (!(in->env = read_file(dir, "cluster.env", FILE_MAX, &in->env_size, e)) ||
	    !(in->mesh = read_file(dir, "mesh.yaml", FILE_MAX, &in->mesh_size, e)) ||
	    !(token = read_file(dir, "istio-token", TOKEN_MAX, &in->token_size, e)))
		return -1;
	in->token = secret_new(token, in->token_size);
	mem_wipe_free_block(token);
	in->hosts = read_file(dir, "hosts", FILE_MAX, &in->hosts_size, &none); /* NULL: none */
	return 0;
}

static void clear_input(struct input *in)
{
	free(in->env);
	free(in->mesh);
	free(in->hosts);
	secret_free(in->token);
}

/* --- writing --- */

static int place(struct output *o, const char *to, const struct machine *m, struct err *e)
{
	char uid[UUID_TEXT_SIZE];

	uuid_format(&m->uid, uid);
	if (strlen(to) + sizeof("/..yaml.new") + UUID_TEXT_SIZE > PATH_MAX)
		return err_set(e, ENAMETOOLONG, "--to: more than %d bytes", PATH_MAX);
	snprintf(o->folder, PATH_MAX, "%s/%s", to, uid);
	snprintf(o->token, PATH_MAX, "%s/%s/token", to, uid);
	snprintf(o->manifest, PATH_MAX, "%s/%s.yaml", to, uid);
	snprintf(o->temporary, PATH_MAX, "%s/.%s.yaml.new", to, uid);
	if (!access(o->manifest, F_OK))
		return err_set(e, EEXIST, "%s is there already; nothing was written", o->manifest);
	return 0;
}

/* A file that was not there before. */
static int write_new(const char *path, const char *text, size_t size, struct err *e)
{
	auto_close int fd =
	    open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
	ssize_t n;

	if (fd < 0)
		return err_sys(e, "%s", path);
	for (size_t at = 0; at < size; at += (size_t)n)
		if ((n = write(fd, text + at, size - at)) <= 0) {
			err_sys(e, "%s", path);
			unlink(path);
			return -1;
		}
	return 0;
}

/* All of it appears at once, or nothing: link(2) replaces no file. */
static int publish(const struct output *o, const char *text, struct err *e)
{
	int rc;

	if (write_new(o->temporary, text, strlen(text), e))
		return -1;
	rc = link(o->temporary, o->manifest) ? err_sys(e, "%s", o->manifest) : 0;
	unlink(o->temporary);
	return rc;
}

static int write_all(
    const struct output *o, const struct input *in, const struct machine *m, struct err *e)
{
	if (mkdir(o->folder, S_IRWXU))
		return err_sys(e, "%s", o->folder);
	if (!write_new(o->token, in->token, in->token_size, e)) {
		if (!publish(o, m->manifest, e))
			return 0;
		unlink(o->token);
	}
	rmdir(o->folder);
	return -1;
}

/* --- telling --- */

/* Lines of `hosts`, which a person has to add. */
static void print_hosts(const struct input *in)
{
	char line[200];

	for (size_t at = 0, n; in->hosts && at < in->hosts_size; at += n + 1) {
		n = strcspn(in->hosts + at, "\n");
		err_printable(line, sizeof(line), in->hosts + at, (unsigned)n);
		if (n && *line != '#')
			printf("  /etc/hosts:\n    %s\n", line);
	}
}

static void print_left(const struct machine *m)
{
	const char *what;
	json_t *why;

	if (json_object_size(m->left))
		printf("not taken over:\n");
	json_object_foreach (m->left, what, why)
		printf("  %s: %s\n", what, json_string_value(why));
}

static void print_text(
    const char *from, const struct input *in, const struct machine *m, const struct output *o)
{
	printf("written:\n  %s\n  %s\n", o->manifest, o->token);
	printf("still to do, unless it is there already:\n");
	printf("  /etc/agentd/agentd.yaml, below control_planes:\n    %s\n", m->plane);
	printf("  install -m 644 %s/root-cert.pem /etc/agentd/root-cert.pem\n"
	       "    for --root-file 0=/etc/agentd/root-cert.pem in /etc/agentd/agentd.env\n",
	    from);
	print_hosts(in);
	printf("  %s/cgroup: the pod's cgroup, one line\n", o->folder);
	print_left(m);
}

static void print_answer(const struct ctl *c, const struct machine *m, const struct output *o)
{
	json_t *answer = json_pack("{s:s, s:s, s:s, s:O}", "manifest", o->manifest, "token",
	    o->token, "control_plane", m->plane, "not_taken_over", m->left);

	ctl_print_answer(c, answer);
	json_decref(answer);
}

/* --- the command --- */

/* The host's, without its domain. */
static const char *default_name(char out[HOST_NAME_MAX + 1])
{
	if (gethostname(out, HOST_NAME_MAX))
		*out = '\0';
	out[HOST_NAME_MAX] = '\0';
	out[strcspn(out, ".")] = '\0';
	return out;
}

static int make(const struct ctl *c, const char *from, const struct input *in, struct err *e)
{
	const char *to = ctl_option(c, "to"), *name = ctl_option(c, "name");
	char host[HOST_NAME_MAX + 1];
	const struct machine_files f = {.name = name ? name : default_name(host),
	    .env = in->env,
	    .mesh = in->mesh,
	    .env_size = in->env_size,
	    .mesh_size = in->mesh_size};
	struct machine m;
	struct output o;
	int rc;

	if (machine_read(&m, &f, e))
		return -1;
	rc = place(&o, to ? to : to_default, &m, e) || write_all(&o, in, &m, e) ? -1 : 0;
	if (!rc && c->json)
		print_answer(c, &m, &o);
	else if (!rc)
		print_text(from, in, &m, &o);
	machine_clear(&m);
	return rc;
}

static int manifest(const struct ctl *c)
{
	const char *from = ctl_option(c, "from");
	struct input in = {0};
	struct err e;
	int rc;

	if (!from)
		return ctl_command_usage(&ctl_manifest, stderr);
	rc = read_input(&in, from, &e) || make(c, from, &in, &e) ? -1 : 0;
	if (rc)
		fprintf(stderr, "agentctl: %s\n", e.msg);
	clear_input(&in);
	return rc ? CTL_PROBLEM : CTL_OK;
}

const struct ctl_command ctl_manifest = {
    .noun = "manifest",
    .args = "--from DIR",
    .help = "a manifest of the files of istioctl x workload entry configure",
    .options = {{"from", "DIR", "where these files are"},
	{"to", "DIR", "agentd's --manifests (/etc/agentd/pods.d)"},
	{"name", "NAME", "the pod's (the host's)"}},
    .run = manifest,
};
