/* broker_kubelet_fuzz.c - any bytes where the broker searches a text that it does not parse: the
 * kubelet's vol_data.json, a line of mountinfo, a manifest.
 *
 * First byte: which of them.  A line of mountinfo is once what came, and once made of it as the
 * kernel makes one: then root, source and sharing are what they were made of.
 * SOAK: 10000000 runs
 */
#include "broker/kubelet/mount.c" /* their statics */
#include "broker/kubelet/pod_source.c"
#include "broker/kubelet/volume.c"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void must(bool held)
{
	if (!held)
		abort();
}

/* --- vol_data.json --- */

static void look_at_data(const char *text)
{
	if (names_another(text))
		must(strstr(text, "driverName") && !strstr(text, "agentd.node.mesh\""));
}

/* --- mountinfo --- */

/* As the kernel writes it; its end. */
static char *escape(char *to, const char *name)
{
	for (; *name; name++)
		if (strchr(" \t\n\\#", *name))
			to += sprintf(to, "\\%03o", (unsigned)*name);
		else
			*to++ = *name;
	*to = '\0';
	return to;
}

/* The kernel has no name that is empty, nor one that sscanf() takes for a blank. */
static bool is_name(const char *s)
{
	return *s && !strpbrk(s, "\v\f\r") && strlen(s) < PATH_MAX / 4;
}

static void look_at_line(const char *root, const char *source, bool shared)
{
	char roots[PATH_MAX], sources[PATH_MAX], found[PATH_MAX], line[3 * PATH_MAX];

	if (!is_name(root) || !is_name(source))
		return;
	*roots = '/'; /* a root and a point are paths: none is "-" */
	escape(roots + 1, root);
	escape(sources, source);
	sprintf(line, "36 35 98:0 %s %s rw,noatime%s - tmpfs %s rw,size=3072k\n", roots, roots,
	    shared ? " shared:7 master:1" : "", sources);
	must(root_in(line, found) && !strcmp(found, roots));
	must(source_in(line, found) && !strcmp(found, sources));
	must(says_shared(line) == shared);
}

static void look_at_mounts(char *text)
{
	char found[PATH_MAX] = "", *second = strchr(text, '\n');

	must(!root_in(text, found) || (*found && strlen(found) < PATH_MAX));
	must(!source_in(text, found) || (*found && strlen(found) < PATH_MAX));
	must(!says_shared(text) || strstr(text, " shared:"));
	if (!second)
		return;
	*second++ = '\0';
	look_at_line(text, second, false);
	look_at_line(text, second, true);
}

/* --- a manifest --- */

static void look_at_manifest(const char *text, unsigned port)
{
	auto_free char *with = mem_zalloc(strlen(text) + 64);

	must(!names_admin_port(text, port) || strstr(text, "proxyAdminPort"));
	sprintf(with, "%s\nproxyAdminPort: \"%u\"", text, port);
	must(names_admin_port(with, port));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	char *text = malloc(size + 1);

	memcpy(text, bytes, size);
	text[size] = '\0';
	if (size > 3 && *text == 'd')
		look_at_data(text + 1);
	else if (size > 3 && *text == 'm')
		look_at_mounts(text + 1);
	else if (size > 3)
		look_at_manifest(text + 3, (unsigned)bytes[1] << 8 | bytes[2]);
	free(text);
	return 0;
}
