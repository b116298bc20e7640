/* environment_doc_test.c - docs/ENVIRONMENT.md says what the table says; runs in the project's
 * root.
 *
 * LINK: tests/unit/mesh/node_rig.c
 */
#include "common/mem.h"
#include "mesh/env_keys.h"
#include "mesh/traffic.h"
#include "node_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *file_text(const char *path)
{
	char *text = mem_zalloc(256 << 10);
	FILE *f = fopen(path, "re");

	assert_non_null(f);
	assert_in_range(fread(text, 1, (256 << 10) - 1, f), 1, (256 << 10) - 2);
	(void)fclose(f);
	return text;
}

static void test_every_key_is_documented(void **state)
{
	auto_free char *doc = file_text("docs/ENVIRONMENT.md");
	auto_free char *table = file_text("agentd/mesh/env_keys.c");
	unsigned keys = 0;

	(void)state;
	for (char *row = table; (row = strstr(row, " ROW(\"")); keys++) {
		auto_free char *name = NULL;

		row += strlen(" ROW(\"");
		name = mem_printf("`%.*s`", (int)strcspn(row, "\""), row);
		if (!strstr(doc, name))
			fail_msg("%s is not in docs/ENVIRONMENT.md", name);
	}
	assert_true(keys > 100);
}

static void test_lists_of_the_document_are_true(void **state)
{
	static const struct {
		const char *heading, *list;
	} sections[] = {
	    {"## The node's business", "ignored"},
	    {"## Not yet supported", "unsupported"},
	};
	struct fixture *f = *state;
	auto_free char *doc = file_text("docs/ENVIRONMENT.md");

	for (unsigned i = 0; i < 2; i++) {
		char *at = strstr(doc, sections[i].heading);
		unsigned names = 0;

		assert_non_null(at);
		for (at++; *at && strncmp(at, "\n## ", 4) != 0; at++) {
			auto_free char *name =
			    mem_printf("%.*s", (int)strcspn(at + 1, "`"), at + 1);

			if (*at != '`')
				continue;
			at += strlen(name) + 1;
			if (name[strcspn(name, " .")] || !strcmp(name, "socket"))
				continue; /* fields and annotations */
			if (name[strlen(name) - 1] == '*')
				name[strlen(name) - 1] = 'X';
			accepted(f, name, "some value");
			if (!lists(f, sections[i].list, name))
				fail_msg("%s is not %s", name, sections[i].list);
			names++;
		}
		assert_true(names >= 9);
	}
}

/* The code spans of [at, end): `key`. */
static void each_span(
    const char *at, const char *end, void (*one)(void *ctx, const char *key), void *ctx)
{
	while (at < end && (at = memchr(at, '`', (size_t)(end - at)))) {
		auto_free char *key = mem_printf("%.*s", (int)strcspn(at + 1, "`"), at + 1);

		at += strlen(key) + 2;
		one(ctx, key);
	}
}

/* The first cell of each row of the tables in a part of the document, and `prose`: all of it. */
static void each_key(const char *part, const char *end, bool prose,
    void (*one)(void *ctx, const char *key), void *ctx)
{
	for (const char *line = part; line < end; line += strcspn(line, "\n") + 1) {
		const char *cell_end = line + (*line == '|' ? strcspn(line + 1, "|") + 1 : 0);

		if (*line == '|')
			each_span(line, cell_end, one, ctx);
		else if (prose)
			each_span(line, line + strcspn(line, "\n"), one, ctx);
	}
}

static void expect_row(void *ctx, const char *key)
{
	(void)ctx;
	if (!env_key_find(key) && strcmp(key, "socket") != 0)
		fail_msg("docs/ENVIRONMENT.md has %s, which env_keys.c does not know", key);
}

static void test_every_documented_key_is_known(void **state)
{
	auto_free char *doc = file_text("docs/ENVIRONMENT.md");
	const char *at = strstr(doc, "## Which control plane");
	const char *lists = strstr(doc, "## Not yet supported");

	(void)state;
	assert_true(at && lists);
	each_key(at, lists, false, expect_row, NULL);
	each_key(lists, strstr(lists, "## Redirection"), true, expect_row, NULL);
}

static void expect_cell(const char *doc, const char *text)
{
	auto_free char *cell = mem_printf("`%s`", text),
		       *other = mem_printf("`annotation %s`", text);

	if (!strstr(doc, cell) && !strstr(doc, other))
		fail_msg("%s is not in docs/ENVIRONMENT.md", cell);
}

static void on_key(void *ctx, const char *flag, const char *annotation, const char *variable,
    const char *otherwise)
{
	const char *doc = ctx;

	expect_cell(doc, flag);
	if (annotation)
		expect_cell(doc, annotation);
	if (variable)
		expect_cell(doc, variable);
	if (*otherwise && strcmp(otherwise, "*") != 0) {
		auto_free char *cell = mem_printf("| %s |", otherwise);

		assert_non_null(strstr(doc, cell));
	}
}

static void collect(void *ctx, const char *flag, const char *annotation, const char *variable,
    const char *otherwise)
{
	char **known = ctx;
	char *more = mem_printf("%s`%s`annotation %s`%s`%s`", *known, flag,
	    annotation ? annotation : "", annotation ? annotation : "", variable ? variable : "");

	(void)otherwise;
	free(*known);
	*known = more;
}

static void expect_known(void *ctx, const char *key)
{
	auto_free char *cell = mem_printf("`%s`", key);

	if (!strstr(*(char **)ctx, cell))
		fail_msg("docs/ENVIRONMENT.md has %s, which redirect.c does not know", key);
}

static void test_documented_keys_of_redirection_are_known(void **state)
{
	auto_free char *doc = file_text("docs/ENVIRONMENT.md");
	auto_free char *known = mem_strdup("`");
	char *at = strstr(doc, "| `redirect:` |"), *end;

	(void)state;
	assert_non_null(at);
	at = strstr(at, "\n| `");
	end = strstr(at, "\n\n");
	traffic_keys_each(collect, &known);
	for (char *line = at + 1; line < end; line += strcspn(line, "\n") + 1) {
		char *cells_end = line + 1;

		for (int i = 0; i < 3; i++)
			cells_end += strcspn(cells_end, "|") + 1;
		each_span(line, cells_end, expect_known, &known);
	}
}

static void test_keys_of_redirection_are_documented(void **state)
{
	auto_free char *doc = file_text("docs/ENVIRONMENT.md");
	char *at = strstr(doc, "## Redirection");

	(void)state;
	assert_non_null(at);
	traffic_keys_each(on_key, at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(every_key_is_documented),
	    TEST(every_documented_key_is_known),
	    TEST(lists_of_the_document_are_true),
	    TEST(documented_keys_of_redirection_are_known),
	    TEST(keys_of_redirection_are_documented),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
