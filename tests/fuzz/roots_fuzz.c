/* roots_fuzz.c - two lists of certificates' PEM blocks, made one.
 *
 * Behind each NUL, and at the start: a byte, into which list the block goes (bits 0 and 1), then
 * its text.  Whatever they are: the union has each block once, in the order of their ends and
 * texts, and is the same whichever list came first; it is its own union.  A text that is no list is
 * not read beyond.
 *
 * All of it is also read as a bundle: what comes out is certificates and nothing else, each of
 * which is in it; what is left out is said, in printable words; and the result reads as itself.
 */
#include "common/err.h"
#include "common/mem.h"
#include "worker/crypto/roots.h"
#include "worker/crypto/x509.h"

#include <openssl/err.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BLOCKS_MAX = 64 };

static const char begin[] = "-----BEGIN CERTIFICATE-----\n", end[] = "-----END CERTIFICATE-----\n";

struct lists {
	char *block[BLOCKS_MAX];
	size_t n, distinct;
	char *text[2]; /* of each list */
};

static void must(bool held)
{
	if (!held)
		abort();
}

static bool is_known(const struct lists *l, const char *block, size_t size)
{
	for (size_t i = 0; i < l->n; i++)
		if (strlen(l->block[i]) == size && !memcmp(l->block[i], block, size))
			return true;
	return false;
}

static void append(char **text, const char *block)
{
	char *longer = mem_printf("%s%s", *text, block);

	free(*text);
	*text = longer;
}

static void add(struct lists *l, const char *at)
{
	unsigned into = at[0] ? (unsigned char)at[0] : 1;

	if (l->n == BLOCKS_MAX || !*at || strstr(at + 1, end))
		return;
	char *block = mem_printf("%s%s%s", begin, at + 1, end);
	l->distinct += !is_known(l, block, strlen(block)) && into & 3;
	for (unsigned i = 0; i < 2; i++)
		if (into & 1U << i)
			append(&l->text[i], block);
	if (into & 3)
		l->block[l->n++] = block;
	else
		free(block);
}

static void check_blocks(const struct lists *l, const char *all)
{
	auto_free char *last = mem_strdup("");
	struct x509_life before, now;
	size_t n = 0;

	x509_pem_life(last, &before);

	for (const char *stop; *all; all = stop, n++) {
		must((stop = strstr(all, end)) != NULL);
		stop += strlen(end);
		must(is_known(l, all, (size_t)(stop - all)));
		char *block = mem_printf("%.*s", (int)(stop - all), all);
		x509_pem_life(block, &now);
		must(!n || before.last_end >= now.last_end);
		must(!n || before.last_end > now.last_end || strcmp(last, block) < 0);
		before = now;
		free(last);
		last = block;
	}
	must(n == l->distinct);
}

static void check_lists(const struct lists *l)
{
	const char *a = l->text[0], *b = l->text[1];
	auto_free char *all = roots_union(a, *b ? b : NULL), *other = roots_union(b, a);
	auto_free char *again = roots_union(all, NULL), *more = roots_union(a, all);

	must(!strcmp(all, other) && !strcmp(all, again) && !strcmp(all, more));
	check_blocks(l, all);
}

static void check_any(const char *text, size_t size)
{
	const char *rest = text + strlen(text) + (strlen(text) < size);
	auto_free char *all = roots_union(text, rest);

	must(strlen(all) <= strlen(text) + strlen(rest));
}

static void check_bundle(const char *text, size_t size)
{
	char note[ROOTS_NOTE_SIZE], again[ROOTS_NOTE_SIZE];
	struct err e = {.msg = ""};
	struct x509_life life;
	auto_free char *all = roots_read(text, size, note, &e);

	for (const char *at = all ? note : e.msg; *at; at++)
		must(*at >= ' ' && *at <= '~');
	must(!ERR_peek_error());
	must(all || *e.msg);
	if (!all)
		return;
	auto_free char *strict = x509_normalise_pem(all, strlen(all), &e);
	auto_free char *same = roots_read(all, strlen(all), again, &e);

	x509_pem_life(all, &life);
	/* They can be over the size limit that their source kept. */
	must(strlen(all) > 256 * 1024 || (life.n && !strcmp(strict, all) && !strcmp(same, all)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_free char *text = mem_zalloc(size + 1);
	struct lists l = {.text = {mem_strdup(""), mem_strdup("")}};

	memcpy(text, data, size);
	for (const char *at = text; at < text + size; at += strlen(at) + 1)
		add(&l, at);
	check_lists(&l);
	check_any(text, size);
	check_bundle(text, size);
	while (l.n)
		free(l.block[--l.n]);
	free(l.text[0]);
	free(l.text[1]);
	return 0;
}
