/* kubepods.c - which trees are there -> in each, three names of the pod.
 *
 * Nothing is remembered: a tree may come after us, and looking for it costs some microseconds.  One
 * that another driver left behind is looked at beside the one in use.
 */
#include "kubepods.h"
#include "common/err.h"
#include "common/mem.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Both drivers, with the kubelet's own --cgroup-root and with that of kind. */
static const char *const usual[] = {
    "kubepods.slice", "kubepods", "kubelet.slice/kubelet-kubepods.slice", "kubelet/kubepods"};
enum { USUAL = sizeof(usual) / sizeof(usual[0]) };

static const char *const classes[] = {"", "burstable", "besteffort"};
enum { CLASSES = sizeof(classes) / sizeof(classes[0]) };

static const char slice[] = ".slice";

static bool is_there(int root, const char *path)
{
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
	    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
	auto_close int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

	return fd >= 0;
}

/* As systemd names slices: each has those above it in its own name, and '-' has no other use. */
static int name_in_slice(
    char *out, size_t size, const char *tree, const char *class, const char *uid)
{
	const char *base = strrchr(tree, '/') ? strrchr(tree, '/') + 1 : tree;
	int n = (int)(strlen(base) - strlen(slice));
	const char *dash = *class ? "-" : "";
	char folder[PATH_MAX] = "", id[UUID_TEXT_SIZE];

	snprintf(id, sizeof(id), "%s", uid);
	for (char *c = id; *c; c++)
		if (*c == '-')
			*c = '_';
	if (*class)
		snprintf(folder, sizeof(folder), "%.*s-%s%s/", n, base, class, slice);
	return snprintf(
	    out, size, "%s/%s%.*s%s%s-pod%s%s", tree, folder, n, base, dash, class, id, slice);
}

static int name_in_folder(
    char *out, size_t size, const char *tree, const char *class, const char *uid)
{
	return snprintf(out, size, "%s/%s%spod%s", tree, class, *class ? "/" : "", uid);
}

static bool is_slice(const char *tree)
{
	size_t n = strlen(tree), end = strlen(slice);

	return n > end && !strcmp(tree + n - end, slice);
}

/* How much of `out` it filled. */
static size_t name_pod(char *out, size_t size, const char *tree, const char *uid)
{
	size_t used = 0;

	for (int i = 0; i < CLASSES; i++) {
		int n = (is_slice(tree) ? name_in_slice : name_in_folder)(
		    out + used, size - used, tree, classes[i], uid);
		if (n < 0 || (size_t)n + 1 >= size - used)
			break;
		used += (size_t)n + 1;
	}
	out[used] = '\0';
	return used;
}

void kubepods_find(
    const struct broker_options *o, int root, const char *uid, char out[KUBEPODS_SIZE])
{
	size_t used = 0;

	out[0] = '\0';
	if (o->kubepods)
		name_pod(out, KUBEPODS_SIZE, o->kubepods, uid);
	for (int i = 0; !o->kubepods && i < USUAL; i++)
		if (is_there(root, usual[i]))
			used += name_pod(out + used, KUBEPODS_SIZE - used, usual[i], uid);
}

void kubepods_trees(const struct broker_options *o, const char *root, char out[KUBEPODS_SIZE])
{
	size_t used = 0;

	memset(out, 0, KUBEPODS_SIZE);
	for (int i = 0; i < (o->kubepods ? 1 : USUAL); i++) {
		int n = snprintf(out + used, KUBEPODS_SIZE - used - 1, "%s/%s", root,
		    o->kubepods ? o->kubepods : usual[i]);
		if (n < 0 || (size_t)n + 2 >= KUBEPODS_SIZE - used) {
			out[used] = '\0';
			return;
		}
		used += (size_t)n + 1;
	}
}

bool kubepods_tree(const struct broker_options *o, int root, char out[PATH_MAX])
{
	int n = 0;

	if (o->kubepods) {
		snprintf(out, PATH_MAX, "%s", o->kubepods);
		return is_there(root, o->kubepods);
	}
	for (int i = 0; i < USUAL; i++)
		if (is_there(root, usual[i]) && !n++)
			snprintf(out, PATH_MAX, "%s", usual[i]);
	return n == 1;
}

/* --- for people --- */

enum { DEPTH_MAX = 6 };

static bool is_tree(const char *name)
{
	size_t n = strlen(name), end = strlen("-kubepods.slice");

	return !strcmp(name, "kubepods") || !strcmp(name, "kubepods.slice") ||
	       (n > end && !strcmp(name + n - end, "-kubepods.slice"));
}

/* `path`: of `dir`, below the root; grows, and is as it was when false is returned. */
static bool look_in(int dir, unsigned depth, char path[PATH_MAX])
{
	const size_t used = strlen(path);
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	bool found = false;

	if (!d)
		mem_closep(&fd);
	while (d && !found && (e = readdir(d))) {
		if (e->d_type != DT_DIR || *e->d_name == '.')
			continue;
		int n = snprintf(path + used, PATH_MAX - used, "%s%s", used ? "/" : "", e->d_name);
		auto_close int below = openat(fd, e->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW);
		found = (size_t)n < PATH_MAX - used &&
			(is_tree(e->d_name) || (depth && look_in(below, depth - 1, path)));
	}
	if (!found)
		path[used] = '\0';
	if (d)
		closedir(d);
	return found;
}

bool kubepods_look(int root, char out[PATH_MAX])
{
	char path[PATH_MAX] = "";
	bool found = look_in(root, DEPTH_MAX, path);

	err_printable(out, PATH_MAX, path, (unsigned)strlen(path));
	return found;
}
