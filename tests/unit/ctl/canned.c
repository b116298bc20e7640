#include "canned.h"
#include "ctl/request.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *answer;
static int failure;
static char last[256];

void canned_answer(const char *json, int status)
{
	answer = json;
	failure = status;
}

const char *canned_request(void)
{
	return last;
}

json_t *ctl_request(const struct ctl *c, const char *method, const char *target, int *status)
{
	json_t *v;

	(void)c;
	snprintf(last, sizeof(last), "%s %s", method, target);
	*status = answer ? CTL_OK : failure;
	if (!answer)
		return NULL;
	v = json_loads(answer, 0, NULL);
	assert_non_null(v); /* the test's own JSON */
	return v;
}

char *canned_text(const struct ctl *c, const char *page, size_t *len, int *status)
{
	json_decref(ctl_request(c, "ENVOY", page, status));
	*len = answer ? strlen(answer) : 0;
	return answer ? strdup(answer) : NULL;
}

/* Sends fd to a temporary file, whose descriptor is returned; *kept brings it back. */
static int catch_fd(int fd, int *kept)
{
	char path[] = "/tmp/ctl_test.XXXXXX";
	int file = mkostemp(path, O_CLOEXEC);

	assert_true(file >= 0);
	unlink(path);
	*kept = fcntl(fd, F_DUPFD_CLOEXEC, 10);
	dup2(file, fd);
	return file;
}

static void release_fd(int fd, int kept, int file, char *text, size_t size)
{
	ssize_t n = pread(file, text, size - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	dup2(kept, fd);
	close(kept);
	close(file);
}

int ctl_stream(
    const struct ctl *c, const char *target, void (*print)(const struct ctl *c, const json_t *line))
{
	int status;
	json_t *v = ctl_request(c, "STREAM", target, &status), *one;
	size_t i;

	json_array_foreach (json_object_get(v, "lines"), i, one)
		print(c, one);
	json_decref(v);
	return status;
}

const struct printed *run_asked(int (*cmd)(const struct ctl *c), struct ctl c)
{
	static struct printed p;
	int out_kept, err_kept;

	c.run = "/nowhere";
	fflush(stdout);
	int out = catch_fd(STDOUT_FILENO, &out_kept), err = catch_fd(STDERR_FILENO, &err_kept);
	p.status = cmd(&c);
	fflush(stdout);
	release_fd(STDERR_FILENO, err_kept, err, p.err, sizeof(p.err));
	release_fd(STDOUT_FILENO, out_kept, out, p.out, sizeof(p.out));
	return &p;
}

const struct printed *run_command(const struct ctl_command *command, const char *word, bool json)
{
	return run_asked(command->run, (struct ctl){.words = {word}, .json = json});
}

const char *line(const struct printed *p, unsigned n)
{
	static char text[1024];
	const char *at = p->out;

	while (n-- && at)
		at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
	snprintf(text, sizeof(text), "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
	return text;
}

void survive_strange_answers(const struct ctl_command *command, const char *const *answers)
{
	for (; *answers; answers++)
		for (int i = 0; i < 4; i++) {
			canned_answer(*answers, 0);
			const struct printed *p =
			    run_command(command, i & 1 ? "demo/web-0" : NULL, i & 2);

			assert_true(p->status == CTL_OK || p->status == CTL_PROBLEM ||
				    p->status == CTL_NOT_FOUND);
			assert_null(strstr(p->out, "(null)"));
			assert_true(*p->out || *p->err);
		}
}
