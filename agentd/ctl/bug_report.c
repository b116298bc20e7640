/* bug_report.c - agentctl bug-report FILE: every page as a file of one archive, without secrets.
 *
 * No page has one (worker/admin/admin.h).  What looks like one all the same is crossed out: a token
 * in an annotation, a key in a name, the query of a path, the value that a refusal quotes.
 */
#include "commands.h"
#include "common/mem.h"
#include "common/version.h"
#include "request.h"
#include "tar.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char *const pages[] = {
    "status", "pods", "certs", "xds", "redirect", "dns", "logging", "version"};
enum { PAGES = sizeof(pages) / sizeof(*pages) };

static void cross_out(char *from, const char *to)
{
	memset(from, '*', (size_t)(to - from));
}

/* "eyJ" is the beginning of each JSON Web Token. */
static void cross_out_tokens(char *text)
{
	static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				     "0123456789_-.+/=";

	for (char *at = text; (at = strstr(at, "eyJ"));) {
		char *end = at + strspn(at, base64);

		cross_out(at, end);
		at = end;
	}
}

/* To the end of JSON's string: no block of PEM has a quote in it. */
static void cross_out_keys(char *text)
{
	for (char *at = text; (at = strstr(at, "PRIVATE KEY"));) {
		char *end = at + strcspn(at, "\"");

		cross_out(at, end);
		at = end;
	}
}

/* The end of JSON's string that begins at `at`, behind its quote. */
static char *end_of_string(char *at)
{
	while (*at && *at != '"')
		at += at[0] == '\\' && at[1] ? 2 : 1;
	return at;
}

static void cross_out_queries(char *at, const char *end)
{
	while ((at = memchr(at, '?', (size_t)(end - at)))) {
		char *rest = ++at;

		at += strcspn(at, " \\\"");
		cross_out(rest, at);
	}
}

/* From the first \" to the last one: a value may have some of its own. */
static void cross_out_quoted(char *at, const char *end)
{
	static const char quote[] = "\\\"";
	char *from = memmem(at, (size_t)(end - at), quote, 2);
	char *last = NULL;

	for (char *q = from; q; q = memmem(q + 2, (size_t)(end - q - 2), quote, 2))
		last = q;
	if (from && last != from)
		cross_out(from + 2, last);
}

static void cross_out_values(char *text)
{
	for (char *at = text; (at = strchr(at, '"')); at++) {
		char *from = ++at;

		at = end_of_string(at);
		cross_out_queries(from, at);
		if (memmem(from, (size_t)(at - from), "refused", 7))
			cross_out_quoted(from, at);
		if (!*at)
			return;
	}
}

static void add(FILE *out, const char *name, char *text)
{
	cross_out_tokens(text);
	cross_out_keys(text);
	cross_out_values(text);
	ctl_tar_add(out, name, text, strlen(text));
}

static void add_page(FILE *out, const char *page, const json_t *answer)
{
	auto_free char *name = mem_printf("agentd/%s.json", page);
	auto_free char *text = json_dumps(answer, JSON_INDENT(1) | JSON_ENSURE_ASCII);

	if (text)
		add(out, name, text);
}

static void add_machine(FILE *out)
{
	struct utsname u = {.sysname = ""};
	auto_free char *text = NULL;

	uname(&u);
	text = mem_printf(
	    "agentctl %s\nkernel %s %s %s\n", version_text, u.release, u.version, u.machine);
	add(out, "agentd/machine.txt", text);
}

/* A page that an agentd does not have, or cannot make, is a line on stderr and no reason to stop.
 */
static int fill(const struct ctl *c, FILE *out)
{
	const struct ctl raw = {.run = c->run, .json = true};
	unsigned there = 0;
	int status = CTL_OK;

	for (unsigned i = 0; i < PAGES && status != CTL_UNREACHABLE; i++) {
		auto_free char *target = mem_printf("/%s", pages[i]);
		json_t *answer = ctl_request(&raw, "GET", target, &status);

		if (answer)
			add_page(out, pages[i], answer);
		there += answer != NULL;
		json_decref(answer);
	}
	add_machine(out);
	ctl_tar_end(out);
	if (status == CTL_UNREACHABLE)
		return status;
	return there == PAGES ? CTL_OK : CTL_PROBLEM;
}

/* Only root may read it, and nothing that is there is overwritten. */
static int bug_report(const struct ctl *c)
{
	const char *path = c->words[0];
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
	int status;

	if (!out) {
		fprintf(stderr, "agentctl: %s: %s\n", path, strerror(errno));
		mem_closep(&fd);
		return CTL_USAGE;
	}
	status = fill(c, out);
	bool failed = ferror(out);
	if (fclose(out) || failed) {
		fprintf(stderr, "agentctl: %s: cannot be written\n", path);
		status = CTL_PROBLEM;
	}
	if (status == CTL_UNREACHABLE)
		(void)unlink(path);
	else
		printf("%s: names of pods and accounts are in it, tokens and keys are not\n", path);
	return status;
}

const struct ctl_command ctl_bug_report = {
    .noun = "bug-report",
    .args = "FILE",
    .help = "all pages as a tar archive, without secrets",
    .least = 1,
    .most = 1,
    .run = bug_report,
};
